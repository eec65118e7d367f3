package registry

import (
	"cmp"
	"encoding/json"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/ashore-mesh/ashore/internal/pmap"
)

// RegistrationKey identifies a registered workload, or a workload that reports its health for a
// WorkloadEntry that an operator wrote.
type RegistrationKey struct {
	Namespace string `json:"namespace"`
	// Group is the name of the WorkloadGroup. Empty if the workload reports for the WorkloadEntry
	// called Name.
	Group string `json:"group,omitempty"`
	// Name is the name of the WorkloadEntry. See RegistrationName.
	Name string `json:"name"`
}

// Compare orders by namespace, group, name.
func (k RegistrationKey) Compare(o RegistrationKey) int {
	return cmp.Or(cmp.Compare(k.Namespace, o.Namespace), cmp.Compare(k.Group, o.Group), cmp.Compare(k.Name, o.Name))
}

// Registration is what a proxy sent about its workload. It does not contain the settings of the
// WorkloadGroup. Immutable: the pointer is the version.
type Registration struct {
	RegistrationKey
	// Identity is the workload's authenticated SPIFFE ID. Empty if the workload is not
	// authenticated.
	Identity string `json:"identity,omitempty"`
	// Certificate is the hex SHA-256 fingerprint of the workload's latest certificate. Empty if the
	// workload is not authenticated.
	Certificate string `json:"certificate,omitempty"`
	// Workload is a stable ID that all certificates of the workload have in common. Limits apply
	// per Workload. Empty if the workload is not authenticated.
	Workload string `json:"workload,omitempty"`
	// Addresses lists the addresses of the proxy, at least one. The first is the address of the
	// workload.
	Addresses []netip.Addr `json:"addresses"`
	// Labels, Locality and Network are those that the proxy sent. They may be empty.
	Labels   map[string]string `json:"labels,omitempty"`
	Locality Locality          `json:"locality,omitzero"`
	Network  string            `json:"network,omitempty"`
	// Unintercepted means that the proxy's INTERCEPTION_MODE is NONE: no rules redirect connections
	// to the proxy.
	Unintercepted bool `json:"unintercepted,omitempty"`
	// Probed means that the workload has a readiness probe. It is not healthy before the first
	// report.
	Probed bool `json:"probed,omitempty"`
	// Health is the latest report of the proxy.
	Health Report `json:"health,omitzero"`
	// Created is when the workload registered for the first time.
	Created time.Time `json:"created,omitzero"`
	// ConnectedAt is when the proxy last connected.
	ConnectedAt time.Time `json:"connectedAt,omitzero"`
	// DisconnectedAt is when the proxy disconnected. Zero while it is connected.
	DisconnectedAt time.Time `json:"disconnectedAt,omitzero"`
	// Replica is the name of the replica that the proxy is or was last connected to.
	Replica string `json:"replica,omitempty"`
	// Session is the globally unique ID of the xDS stream that registered the workload. Empty if
	// its proxy disconnected, or has not reconnected since the only replica restarted.
	Session string `json:"-"`
	// LeaseExpiry is set after the only replica restarted. The registration ends then unless the
	// proxy reconnects before. Zero otherwise.
	LeaseExpiry time.Time `json:"-"`
}

// CheckSize returns ErrTooLarge if the registration without its health, in JSON, is larger than
// MaxRegistration.
func (r Registration) CheckSize() error {
	r.Health = Report{}
	text, err := json.Marshal(r)
	if err != nil {
		return fmt.Errorf("workload %s/%s: %w", r.Namespace, r.Name, err)
	}
	if len(text) > MaxRegistration {
		return fmt.Errorf("workload %s/%s: %w: the registration is %d bytes, the limit is %d",
			r.Namespace, r.Name, ErrTooLarge, len(text), MaxRegistration)
	}
	return nil
}

// Reported is the health that a proxy reported for its workload.
type Reported uint8

const (
	// NotReported means that there was no report yet.
	NotReported Reported = iota
	// ReportedHealthy and ReportedUnhealthy are the states of a report.
	ReportedHealthy
	ReportedUnhealthy
)

// Report is one health report.
type Report struct {
	State Reported `json:"state,omitempty"`
	// Message is why the probe failed.
	Message string `json:"message,omitempty"`
	// Ports holds the states of the workload's ports.
	Ports PortStates `json:"ports,omitempty"`
	At    time.Time  `json:"at,omitzero"`
}

// Same reports whether r and o are equal except for At.
func (r Report) Same(o Report) bool {
	r.At, o.At = time.Time{}, time.Time{}
	return r == o
}

// Healthy reports whether the workload gets traffic. A probed workload gets none before its first
// report.
func (r Report) Healthy(probed bool) bool {
	return r.State == ReportedHealthy || r.State == NotReported && !probed
}

// Registrations holds the registered workloads by key.
type Registrations = pmap.Map[RegistrationKey, *Registration]

// maxName is the maximum length of the name of an object.
const maxName = 253

// RegistrationName returns the name of the WorkloadEntry of a registered workload: GROUP-ADDRESS,
// or GROUP-ADDRESS-NETWORK if network is set. A name over 253 characters is cut at the
// beginning, as in Istio.
// Source: Istio, pilot/pkg/autoregistration.
func RegistrationName(group string, address netip.Addr, network string) string {
	parts := []string{group, strings.ReplaceAll(address.Unmap().WithZone("").String(), ":", "-"), network}
	name := strings.Join(slices.DeleteFunc(parts, func(s string) bool { return s == "" }), "-")
	if len(name) > maxName {
		name = strings.TrimLeft(name[len(name)-maxName:], "-.")
	}
	return name
}
