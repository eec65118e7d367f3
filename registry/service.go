package registry

import (
	"cmp"
	"net/netip"
	"reflect"
	"strings"
	"time"
)

// Host is the name of a service, by which what several sources supply is joined.
type Host string

func (h Host) String() string { return string(h) }

// Key identifies a service: the same host may be declared in several namespaces.
type Key struct {
	Host      string
	Namespace string
}

// Compare orders by host, then namespace.
func (k Key) Compare(o Key) int {
	return cmp.Or(cmp.Compare(k.Host, o.Host), cmp.Compare(k.Namespace, o.Namespace))
}

// Protocol is the application protocol of a port.
type Protocol uint8

// The protocols, by Istio's names. Unknown means that the proxy detects the protocol.
const (
	Unknown Protocol = iota
	TCP
	HTTP
	HTTP2
	GRPC
	GRPCWeb
	HTTPS
	TLS
	Mongo
	MySQL
	Redis
	UDP
)

// IsHTTP reports whether the proxy routes requests, not connections.
func (p Protocol) IsHTTP() bool { return p == HTTP || p.IsHTTP2() }

// IsHTTP2 reports whether upstream connections are HTTP/2, whatever the client uses.
func (p Protocol) IsHTTP2() bool { return p == HTTP2 || p == GRPC || p == GRPCWeb }

// IsTLS reports whether the proxy routes by SNI and does not terminate TLS.
func (p Protocol) IsTLS() bool { return p == HTTPS || p == TLS }

// Contradicts reports whether two protocols of one port are known and different.
func (p Protocol) Contradicts(o Protocol) bool { return p != o && p != Unknown && o != Unknown }

// Resolution is how the addresses of a service's endpoints are found.
type Resolution uint8

const (
	// Static endpoints carry IP addresses (or unix sockets).
	Static Resolution = iota
	// DNS endpoints are names that the proxy resolves, balancing over all answers.
	DNS
	// DNSRoundRobin endpoints are names; the proxy uses one answer at a time.
	DNSRoundRobin
	// Passthrough goes to the original destination address of the client (ServiceEntry's NONE).
	Passthrough
)

// Service is one destination, immutable.
type Service struct {
	Key
	// Addresses are the virtual IPs, single addresses or prefixes; empty when it has none.
	Addresses []netip.Prefix
	// AutoAddress means that virtual IPs are allocated while Addresses is empty; see WantsAddress.
	AutoAddress bool `json:",omitempty"`
	// AutoAddresses are the allocated virtual IPs, for proxies that capture DNS. Sources leave it
	// empty.
	AutoAddresses []netip.Addr `json:",omitempty"`
	// Ports is in the order of declaration, at least one, numbers unique.
	Ports []Port
	// Resolution of its endpoints.
	Resolution Resolution
	// External is Istio's MESH_EXTERNAL.
	External bool
	// ExportTo lists namespaces, "*" for all, "." for its own, "~" for none; empty means the mesh's
	// default.
	ExportTo []string
	// Labels are those of the declaration; may be nil.
	Labels map[string]string
	// SubjectAltNames are the identities that its workloads may have; empty means any.
	SubjectAltNames []string
	// Created decides which of two declarations of a host is used: the older.
	Created time.Time
	// Relayed means that the registry of another control plane knows it. Our declarations and
	// registries count before it, even if they are younger.
	Relayed bool `json:",omitempty"`
	// Source is the name of the source that an operator edits, and Object what is written there:
	// "ServiceEntry shop/web".
	Source, Object string
}

// Port is one port of a service.
type Port struct {
	Number uint32
	Name   string
	// Protocol is declared, or taken from the port's name; the proxy detects Unknown.
	Protocol Protocol
	// TargetPort is the endpoints' port where they do not name their own; zero means Number.
	TargetPort uint32
}

// Port returns the port of that number, and whether there is one.
func (s *Service) Port(number uint32) (Port, bool) {
	for _, p := range s.Ports {
		if p.Number == number {
			return p, true
		}
	}
	return Port{}, false
}

// Declared reports whether configuration declares the service. Otherwise only registries know it.
func (s *Service) Declared() bool { return !s.Relayed && strings.HasPrefix(s.Object, "ServiceEntry ") }

// CompareAge orders services of one host by use: relayed ones last, then the older first. Zero
// means that only their names decide.
func (s *Service) CompareAge(o *Service) int {
	switch {
	case s.Relayed == o.Relayed:
		return s.Created.Compare(o.Created)
	case s.Relayed:
		return 1
	default:
		return -1
	}
}

// WantsAddress reports whether virtual IPs are to be allocated for the host.
func (s *Service) WantsAddress() bool {
	return s.AutoAddress && len(s.Addresses) == 0 && s.Resolution != Passthrough && !strings.HasPrefix(s.Host, "*")
}

// WithVIP returns the service with allocated virtual IPs.
func (s *Service) WithVIP(v VIP) *Service {
	out := *s
	out.AutoAddresses = []netip.Addr{v.IPv4, v.IPv6}
	return &out
}

// VirtualIPs are the addresses of the service: the declared ones, or else the allocated ones.
func (s *Service) VirtualIPs() []netip.Prefix {
	if len(s.Addresses) > 0 {
		return s.Addresses
	}
	out := make([]netip.Prefix, 0, len(s.AutoAddresses))
	for _, a := range s.AutoAddresses {
		out = append(out, netip.PrefixFrom(a, a.BitLen()))
	}
	return out
}

// Keep returns now, with the pointers of old where the contents are equal.
func Keep(old, now Instances) Instances {
	if old.Service.Equal(now.Service) {
		now.Service = old.Service
	}
	if old.Endpoints.Equal(now.Endpoints) {
		now.Endpoints = old.Endpoints
	}
	return now
}

// Equal reports whether two services are the same in all fields.
func (s *Service) Equal(o *Service) bool {
	return s == o || s != nil && o != nil && reflect.DeepEqual(s, o)
}
