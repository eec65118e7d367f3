package registry

import (
	"cmp"
	"net/netip"
	"strings"
	"time"
)

// Key identifies a service: the same host may be declared in several namespaces.
type Key struct {
	Host      string
	Namespace string
}

// Compare orders by host, then namespace.
func (k Key) Compare(o Key) int {
	return cmp.Or(cmp.Compare(k.Host, o.Host), cmp.Compare(k.Namespace, o.Namespace))
}

// Protocol is what a port speaks.
type Protocol uint8

// The protocols, in Istio's terms. Unknown means that the proxy has to find out by sniffing.
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

// IsHTTP says that the proxy routes requests, not connections.
func (p Protocol) IsHTTP() bool { return p == HTTP || p.IsHTTP2() }

// IsHTTP2 says that upstream connections are HTTP/2 whatever the client spoke.
func (p Protocol) IsHTTP2() bool { return p == HTTP2 || p == GRPC || p == GRPCWeb }

// IsTLS says that the proxy routes by SNI and does not look inside.
func (p Protocol) IsTLS() bool { return p == HTTPS || p == TLS }

// Contradicts says that two declarations of one port, of which neither leaves the protocol open,
// name different ones.
func (p Protocol) Contradicts(o Protocol) bool { return p != o && p != Unknown && o != Unknown }

// Resolution is how the addresses of a service's endpoints are found.
type Resolution uint8

const (
	// Static endpoints carry IP addresses (or unix sockets).
	Static Resolution = iota
	// DNS endpoints are names that the proxy resolves, balancing over all answers.
	DNS
	// DNSRoundRobin endpoints are names of which the proxy uses one answer at a time.
	DNSRoundRobin
	// Passthrough goes to the address that the client had connected to (ServiceEntry's NONE).
	Passthrough
)

// Service is one destination, immutable.
type Service struct {
	Key
	// Addresses are the virtual IPs, single addresses or prefixes; empty when it has none.
	Addresses []netip.Prefix
	// AutoAddresses are virtual IPs that Ashore allocated, for proxies that capture DNS, used when
	// Addresses is empty.
	AutoAddresses []netip.Addr
	// Ports is in the order of declaration, at least one, numbers unique.
	Ports []Port
	// Resolution of its endpoints.
	Resolution Resolution
	// External is Istio's MESH_EXTERNAL.
	External bool
	// ExportTo lists namespaces, "*" for all, "." for its own, "~" for none; empty means the mesh's default.
	ExportTo []string
	// Labels are those of the declaration; may be nil.
	Labels map[string]string
	// SubjectAltNames are the identities that its workloads may have; empty means any.
	SubjectAltNames []string
	// Created decides which of two declarations of a host wins: the older.
	Created time.Time
	// Relayed says that nobody declares it, and no registry of ours knows it: it is what another control plane's registry knows.
	// Whoever else has its host counts before it, however young.
	Relayed bool `json:",omitempty"`
	// Source and Object say where it came from, for people.
	Source, Object string
}

// Port is one port of a service.
type Port struct {
	Number uint32
	Name   string
	// Protocol by the declaration, or by the port's name; Unknown is sniffed.
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

// CompareAge orders services where one of them counts before another: what was relayed after all others, and else the older. It is 0
// where only names tell which one counts.
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

// WantsAddress says that clients can tell the service by an address only if one is allocated for it.
func (s *Service) WantsAddress() bool {
	return len(s.Addresses) == 0 && len(s.AutoAddresses) == 0 && s.Resolution != Passthrough && !strings.HasPrefix(s.Host, "*")
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
