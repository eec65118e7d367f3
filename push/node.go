package push

import (
	"net/netip"
	"unique"

	"github.com/ashore-mesh/ashore/config"
	"github.com/ashore-mesh/ashore/internal/intern"
	"github.com/ashore-mesh/ashore/registry"
)

// NodeType is the first part of a proxy's node ID.
type NodeType uint8

const (
	// Sidecar is the proxy of one workload.
	Sidecar NodeType = iota
	// Router is a gateway.
	Router
)

// Interception is how a sidecar's traffic reaches it: the node's INTERCEPTION_MODE.
type Interception uint8

const (
	// Redirect means that the host redirects connections to the proxy's two ports; Istio's default.
	Redirect Interception = iota
	// TProxy means that the rules of ashore-agent redirect outbound connections to the proxy, and
	// pass inbound ones with their original addresses.
	TProxy
	// None means that nothing is redirected: applications connect to the proxy's listeners.
	None
	// TProxyIPv4 is TProxy on a machine whose kernel has no IPv6: node metadata ASHORE_IPV6 is
	// "false".
	TProxyIPv4
)

// IsTProxy reports whether the rules of ashore-agent redirect the traffic.
func (i Interception) IsTProxy() bool { return i == TProxy || i == TProxyIPv4 }

// Capabilities is the set of optional extensions that a client has, one bit each. Package gen
// defines the bits.
type Capabilities uint64

// Has reports whether c contains all of want.
func (c Capabilities) Has(want Capabilities) bool { return c&want == want }

// Label is one label of a workload.
type Label struct{ Key, Value string }

// Node is what a proxy sends about itself, reduced to what Ashore uses. Comparable.
type Node struct {
	Type NodeType
	// ID is the third part of the node ID, "web-1.shop".
	ID string
	// Namespace is that of its workload.
	Namespace string
	// IPs are its addresses, the first one is its own for listeners.
	IPs *intern.List[netip.Addr]
	// Labels are sorted by key.
	Labels *intern.List[Label]
	// DNSDomain is the fourth part of the node ID, "shop.svc.cluster.local".
	DNSDomain      string
	ServiceAccount string
	Locality       registry.Locality
	Network        string
	Interception   Interception
	// CapturesDNS means that the workload's DNS queries are answered from the proxy's name table:
	// node metadata DNS_CAPTURE.
	CapturesDNS bool
	// HTTPProxyPort is the port of the HTTP proxy listener: node metadata HTTP_PROXY_PORT. Zero:
	// the mesh's setting.
	HTTPProxyPort uint32
	// Identity means that it is authenticated, so it has a certificate of the mesh.
	Identity bool
	// Probe is the ReadinessProbe of the WorkloadGroup that its workload registered from, in
	// protobuf's encoding; the empty text: the group has none. Zero: it did not register from a
	// group.
	Probe        unique.Handle[string]
	Capabilities Capabilities
}

// Facets are what a proxy's resources depend on. Proxies with equal facets get equal resources. A
// fact that makes no difference to a proxy has its zero value.
type Facets struct {
	Type NodeType
	// Namespace is set only when the proxy's namespace sees something that others do not.
	Namespace string
	// Sidecar is the one that applies to the proxy; nil: everything visible is in scope.
	Sidecar *SidecarConfig
	// Gateways are the servers that select the proxy (routers only), in order of precedence.
	Gateways *intern.List[GatewayServer]
	// Own is the proxy's inbound side; nil for routers.
	Own *Own
	// RouteSources are the conditional matches of routes (by source label or namespace) that hold
	// for the proxy: pointers to HTTPMatchRequest, L4MatchAttributes or TLSMatchAttributes.
	RouteSources *intern.List[any]
	// Locality and Network are set only when a destination's endpoints are ordered by them.
	Locality registry.Locality
	Network  string
	// FailoverLabels are the proxy's labels that a destination's failoverPriority names, by key;
	// nil otherwise.
	FailoverLabels *intern.List[Label]
	// Interception says how its listeners bind.
	Interception Interception
	// Bind is the default address of outbound listeners with a port of their own: the proxy's own
	// address if that is a loopback address, else 127.0.0.1. Zero unless Interception is None.
	Bind netip.Addr
	// CapturesDNS means that clients of the proxy resolve hosts to their allocated addresses.
	CapturesDNS bool
	// IPv6Only means that the proxy has no IPv4 address.
	IPv6Only bool
	// DualStack means that it has an IPv4 address, and an IPv6 address that others can reach.
	DualStack bool
	// HTTPProxyPort is where the mesh's HTTP proxy listens; zero: nowhere.
	HTTPProxyPort uint32
	// Identity means that it has a certificate of the mesh. Without one it speaks no mutual TLS.
	Identity bool
	// Probe is that of the workload's WorkloadGroup, as in Node.
	Probe unique.Handle[string]
	// PeerAuthentication, RequestAuthentication and AuthorizationPolicy are the objects of those
	// kinds that select the proxy, of its own and of the root namespace, the older first.
	PeerAuthentication    *intern.List[*config.Object]
	RequestAuthentication *intern.List[*config.Object]
	AuthorizationPolicy   *intern.List[*config.Object]
	Capabilities          Capabilities
}

// Own is what only one proxy has. Equal values are one pointer.
type Own struct {
	// Addresses are the proxy's.
	Addresses *intern.List[netip.Addr]
	// Inbound are the service ports that the workload serves, by target port, then host.
	Inbound *intern.List[Inbound]
}

// Inbound is one service port that a workload serves.
type Inbound struct {
	Service *registry.Service
	Port    registry.Port
	// TargetPort is where the workload listens.
	TargetPort uint32
	// Mutual means that the endpoint accepts mutual TLS. Intercepted means that clients expect its
	// proxy at every port.
	Mutual, Intercepted bool
	// State is PortServed, PortClosed or PortLoopback; PortServed when the workload is intercepted.
	State registry.PortState
}
