package registry

import (
	"cmp"
	"net/netip"
	"reflect"
	"strings"
	"time"
)

// Host is the name of a service. The services of several sources are joined by host.
type Host string

// String returns the host.
func (h Host) String() string { return string(h) }

// Key identifies a service. Several namespaces may declare the same host.
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
	// DynamicDNS resolves the host that each request or connection names. The host of the service is
	// a wildcard, and there are no endpoints.
	DynamicDNS
)

// hasEndpoints reports whether services have endpoints.
func (r Resolution) hasEndpoints() bool { return r != Passthrough && r != DynamicDNS }

// Distribution says which endpoints get traffic while they are healthy. Empty means all.
// Source: Kubernetes, Service.spec.trafficDistribution; Istio, model.GetTrafficDistribution.
type Distribution string

// The distributions. Each prefers endpoints of the client's network, region and zone, in this order.
// PreferSameNode prefers those of its sub-zone too.
const (
	PreferSameZone Distribution = "PreferSameZone"
	PreferSameNode Distribution = "PreferSameNode"
)

// DistributionAnnotation sets Service.Distribution for a Service or ServiceEntry, or for a Namespace.
const DistributionAnnotation = "networking.istio.io/traffic-distribution"

// ParseDistribution parses trafficDistribution or the annotation. Other values mean all endpoints.
func ParseDistribution(text string) Distribution {
	switch strings.ToLower(text) {
	case "preferclose", "prefersamezone":
		return PreferSameZone
	case "prefersamenode":
		return PreferSameNode
	}
	return ""
}

// Service is one destination. Immutable.
type Service struct {
	Key
	// Addresses lists the declared virtual IPs, single addresses or prefixes. May be empty.
	Addresses []netip.Prefix
	// Cluster is the ID of the cluster of Kubernetes that has Addresses. Empty means that they are
	// valid everywhere.
	Cluster string `json:",omitempty"`
	// OtherAddresses holds the virtual IPs of the service in other clusters, by their ID. Sources leave
	// it empty.
	OtherAddresses map[string][]netip.Prefix `json:",omitempty"`
	// ExternalAddresses lists addresses at which other networks reach the ports of the service, such
	// as those of a load balancer. May be empty.
	ExternalAddresses []netip.Addr `json:",omitempty"`
	// AutoAddress means that virtual IPs are allocated if Addresses is empty. See WantsAddress.
	AutoAddress bool `json:",omitempty"`
	// AutoAddresses lists the allocated virtual IPs, for proxies that capture DNS. Sources leave it
	// empty.
	AutoAddresses []netip.Addr `json:",omitempty"`
	// Ports lists the ports in the order of declaration, at least one. Numbers are unique.
	Ports []Port
	// Resolution is how the addresses of the endpoints are found.
	Resolution Resolution
	// External is Istio's MESH_EXTERNAL.
	External bool
	// ExportTo lists namespaces: "*" for all, "." for that of the service, "~" for none. Empty
	// means the mesh's default.
	ExportTo []string
	// Distribution says which endpoints get traffic first. A DestinationRule takes precedence.
	Distribution Distribution `json:",omitempty"`
	// Labels are the labels of the declaration. May be nil.
	Labels map[string]string
	// SubjectAltNames lists the identities that the workloads may have. Empty means any.
	SubjectAltNames []string
	// Created is when the service was declared. The older of two declarations of a host is used.
	Created time.Time
	// Declared means that a ServiceEntry declares the service. Otherwise it is from a registry.
	Declared bool `json:",omitempty"`
	// Relayed means that the service is from the registry of another control plane. Our
	// declarations and registries take precedence, even if they are younger.
	Relayed bool `json:",omitempty"`
	// Source is the name of the source that an operator edits. Object is the name of the service
	// there: "ServiceEntry shop/web".
	Source, Object string
}

// Port is one port of a service.
type Port struct {
	Number uint32
	Name   string
	// Protocol is declared, or follows from the name of the port. If it is Unknown, the proxy
	// detects the protocol.
	Protocol Protocol
	// TargetPort is the port of endpoints that have no entry in Endpoint.Ports. Zero means Number.
	TargetPort uint32
}

// Port returns the port with that number, and whether there is one.
func (s *Service) Port(number uint32) (Port, bool) {
	for _, p := range s.Ports {
		if p.Number == number {
			return p, true
		}
	}
	return Port{}, false
}

// CompareAge orders services by precedence: relayed services last, and the older service first. It
// returns zero if only their names differ.
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

// WantsAddress reports whether the host needs allocated virtual IPs.
func (s *Service) WantsAddress() bool {
	return s.AutoAddress && len(s.Addresses) == 0 && s.Resolution != Passthrough && !strings.HasPrefix(s.Host, "*")
}

// WithVIP returns a copy of the service with allocated virtual IPs.
func (s *Service) WithVIP(v VIP) *Service {
	out := *s
	out.AutoAddresses = []netip.Addr{v.IPv4, v.IPv6}
	return &out
}

// In returns the service as the workloads of a cluster see it: with the virtual IPs that it has there.
func (s *Service) In(cluster string) *Service {
	addresses := s.OtherAddresses[cluster]
	if len(addresses) == 0 {
		return s
	}
	out := *s
	out.Addresses = addresses
	return &out
}

// VirtualIPs returns the declared virtual IPs of the service, or else the allocated ones.
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

// Keep returns current, with the pointers of previous where the contents are equal.
func Keep(previous, current Instances) Instances {
	if previous.Service.Equal(current.Service) {
		current.Service = previous.Service
	}
	if previous.Endpoints.Equal(current.Endpoints) {
		current.Endpoints = previous.Endpoints
	}
	return current
}

// Equal reports whether two services are the same in all fields.
func (s *Service) Equal(o *Service) bool {
	return s == o || s != nil && o != nil && reflect.DeepEqual(s, o)
}
