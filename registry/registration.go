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

// RegistrationKey identifies a workload that registered, or that reports its health for a
// WorkloadEntry of an operator.
type RegistrationKey struct {
	Namespace string `json:"namespace"`
	// Group is the name of its WorkloadGroup; empty when it reports for the WorkloadEntry called
	// Name.
	Group string `json:"group,omitempty"`
	// Name is that of its WorkloadEntry; see RegistrationName.
	Name string `json:"name"`
}

// Compare orders by namespace, group, name.
func (k RegistrationKey) Compare(o RegistrationKey) int {
	return cmp.Or(cmp.Compare(k.Namespace, o.Namespace), cmp.Compare(k.Group, o.Group), cmp.Compare(k.Name, o.Name))
}

// Registration is what a proxy sent about its workload. Immutable: the pointer is the version. It
// does not contain what the WorkloadGroup sets.
type Registration struct {
	RegistrationKey
	// Identity is its authenticated SPIFFE ID; empty: it is not authenticated.
	Identity string `json:"identity,omitempty"`
	// Certificate is the SHA-256 of its latest certificate in DER, in hexadecimal digits; empty: it
	// is not authenticated.
	Certificate string `json:"certificate,omitempty"`
	// Workload distinguishes it from others with its Identity, whatever certificate it has. Limits
	// are per Workload. Empty: it is not authenticated.
	Workload string `json:"workload,omitempty"`
	// Addresses are the proxy's, the first one is the workload's; at least one.
	Addresses []netip.Addr `json:"addresses"`
	// Labels, Locality and Network are those that the proxy sent; may be empty.
	Labels   map[string]string `json:"labels,omitempty"`
	Locality Locality          `json:"locality,omitzero"`
	Network  string            `json:"network,omitempty"`
	// Unintercepted means that connections bypass the workload's proxy: its INTERCEPTION_MODE is
	// NONE.
	Unintercepted bool `json:"unintercepted,omitempty"`
	// Probed means that the workload has a readiness probe. It is not healthy before the first
	// report.
	Probed bool `json:"probed,omitempty"`
	// Health is the latest report of the proxy.
	Health Report `json:"health,omitzero"`
	// Created is when it registered for the first time.
	Created time.Time `json:"created,omitzero"`
	// ConnectedAt is when its proxy connected last. DisconnectedAt is when it disconnected; zero
	// while it is connected.
	ConnectedAt    time.Time `json:"connectedAt,omitzero"`
	DisconnectedAt time.Time `json:"disconnectedAt,omitzero"`
	// Replica is the control plane that its proxy is, or was, connected to.
	Replica string `json:"replica,omitempty"`
	// Session identifies the stream that registered it, unique among all replicas. It is not saved.
	Session string `json:"-"`
	// Lease is when the registration ends unless the proxy reconnects; zero while it is connected.
	Lease time.Time `json:"-"`
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
	// NotReported means that there was no report.
	NotReported Reported = iota
	// ReportedHealthy and ReportedUnhealthy are the states of a report.
	ReportedHealthy
	ReportedUnhealthy
)

// Report is one report of health.
type Report struct {
	State Reported `json:"state,omitempty"`
	// Message is why the probe failed.
	Message string `json:"message,omitempty"`
	// Ports are the states of its ports.
	Ports PortStates `json:"ports,omitempty"`
	At    time.Time  `json:"at,omitzero"`
}

// Same reports whether two reports are equal but for their time.
func (r Report) Same(o Report) bool {
	r.At, o.At = time.Time{}, time.Time{}
	return r == o
}

// Healthy reports whether the workload gets traffic. A probed workload gets none before the first
// report.
func (r Report) Healthy(probed bool) bool {
	return r.State == ReportedHealthy || r.State == NotReported && !probed
}

// Registrations are workloads by key.
type Registrations = pmap.Map[RegistrationKey, *Registration]

// maxName bounds the name of an object.
const maxName = 253

// RegistrationName is the name of the WorkloadEntry of a workload that registered: "web-10.0.0.1",
// with its network "web-10.0.0.1-n1". The beginning of a name that is too long is cut off.
// Source: Istio, pilot/pkg/autoregistration.
func RegistrationName(group string, address netip.Addr, network string) string {
	parts := []string{group, strings.ReplaceAll(address.Unmap().WithZone("").String(), ":", "-"), network}
	name := strings.Join(slices.DeleteFunc(parts, func(s string) bool { return s == "" }), "-")
	if len(name) > maxName {
		name = strings.TrimLeft(name[len(name)-maxName:], "-.")
	}
	return name
}
