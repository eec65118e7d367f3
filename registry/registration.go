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

// RegistrationKey identifies a workload that registered itself, or that reports for an entry which
// an operator wrote.
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

// Registration is a workload as its proxy introduced itself. Immutable once it was handed over: the
// pointer is the version. What its WorkloadGroup says of it is not in it.
type Registration struct {
	RegistrationKey
	// Identity is what it proved to be, a SPIFFE ID; empty when it proved nothing.
	Identity string `json:"identity,omitempty"`
	// Certificate is that which it proved itself by last, the SHA-256 of its DER in hexadecimal
	// digits; empty when it proved nothing.
	Certificate string `json:"certificate,omitempty"`
	// Workload tells it from others of its Identity, whichever certificate it has; empty when it
	// proved nothing. Limits count by it.
	Workload string `json:"workload,omitempty"`
	// Addresses are the proxy's, the first one is the workload's; at least one.
	Addresses []netip.Addr `json:"addresses"`
	// Labels, Locality and Network are as the proxy says; may be empty.
	Labels   map[string]string `json:"labels,omitempty"`
	Locality Locality          `json:"locality,omitzero"`
	Network  string            `json:"network,omitempty"`
	// Unintercepted says that connections reach the workload past its proxy: the INTERCEPTION_MODE
	// of a sidecar is NONE.
	Unintercepted bool `json:"unintercepted,omitempty"`
	// Probed says that the proxy asks the workload whether it is ready: until it has reported, it
	// is not.
	Probed bool `json:"probed,omitempty"`
	// Health is what the proxy reported last.
	Health Report `json:"health,omitzero"`
	// Created is when it registered for the first time.
	Created time.Time `json:"created,omitzero"`
	// ConnectedAt is when its proxy connected last, and DisconnectedAt when the proxy went; zero
	// while it is connected.
	ConnectedAt    time.Time `json:"connectedAt,omitzero"`
	DisconnectedAt time.Time `json:"disconnectedAt,omitzero"`
	// Replica is the control plane that its proxy is, or was, connected to.
	Replica string `json:"replica,omitempty"`
	// Session is the stream that speaks for it, unique among all replicas and for ever. Not kept
	// beyond the process.
	Session string `json:"-"`
	// Lease is until when it counts if nothing more is heard of it; zero while its proxy is
	// connected.
	Lease time.Time `json:"-"`
}

// CheckSize says whether what the proxy says fits. Errors: ErrTooLarge.
func (r Registration) CheckSize() error {
	r.Health = Report{}
	text, err := json.Marshal(r)
	if err != nil {
		return fmt.Errorf("workload %s/%s: %w", r.Namespace, r.Name, err)
	}
	if len(text) > MaxRegistration {
		return fmt.Errorf("workload %s/%s: %w: its labels and addresses have %d bytes, want %d or less",
			r.Namespace, r.Name, ErrTooLarge, len(text), MaxRegistration)
	}
	return nil
}

// Reported is what a proxy said of its workload's health.
type Reported uint8

const (
	// NotReported means that it said nothing.
	NotReported Reported = iota
	// ReportedHealthy and ReportedUnhealthy are what it said.
	ReportedHealthy
	ReportedUnhealthy
)

// Report is one report of health.
type Report struct {
	State Reported `json:"state,omitempty"`
	// Message says what is wrong, in the words of whoever asked the workload.
	Message string `json:"message,omitempty"`
	// Ports are the states of its ports.
	Ports PortStates `json:"ports,omitempty"`
	At    time.Time  `json:"at,omitzero"`
}

// Same says that two reports say the same, whenever they were made.
func (r Report) Same(o Report) bool {
	r.At, o.At = time.Time{}, time.Time{}
	return r == o
}

// Healthy says whether the workload may be sent traffic. Probed says that somebody asks it whether
// it is ready; then it is not before it was asked.
func (r Report) Healthy(probed bool) bool {
	return r.State == ReportedHealthy || r.State == NotReported && !probed
}

// Registrations are workloads by key.
type Registrations = pmap.Map[RegistrationKey, *Registration]

// maxName bounds the name of an object.
const maxName = 253

// RegistrationName is the name of the WorkloadEntry of a workload that registered itself:
// "web-10.0.0.1", with its network "web-10.0.0.1-n1". Of a name that would be too long, the front
// is cut off.
// Source: Istio, pilot/pkg/autoregistration.
func RegistrationName(group string, address netip.Addr, network string) string {
	parts := []string{group, strings.ReplaceAll(address.Unmap().WithZone("").String(), ":", "-"), network}
	name := strings.Join(slices.DeleteFunc(parts, func(s string) bool { return s == "" }), "-")
	if len(name) > maxName {
		name = strings.TrimLeft(name[len(name)-maxName:], "-.")
	}
	return name
}
