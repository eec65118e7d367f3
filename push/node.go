package push

import (
	"net/netip"
	"unique"

	mesh "istio.io/api/mesh/v1alpha1"

	"github.com/ashore-mesh/ashore/config"
	"github.com/ashore-mesh/ashore/internal/intern"
	"github.com/ashore-mesh/ashore/internal/secret"
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

// Label is one label of a workload.
type Label struct{ Key, Value string }

// Node holds the fields of a proxy's node that Ashore uses. Comparable.
type Node struct {
	Type NodeType
	// ID is the third part of the node ID, "web-1.shop".
	ID string
	// Namespace is the namespace of the workload.
	Namespace string
	// IPs lists the addresses of the proxy. Listeners use the first one. IPv4 addresses are not
	// mapped.
	IPs *intern.List[netip.Addr]
	// Labels are sorted by key.
	Labels *intern.List[Label]
	// DNSDomain is the fourth part of the node ID, "shop.svc.cluster.local".
	DNSDomain      string
	ServiceAccount string
	Locality       registry.Locality
	// Network is that of the node's metadata or of the WorkloadGroup.
	Network      string
	Interception Interception
	// CapturesDNS means that the workload's DNS queries are answered from the proxy's name table:
	// node metadata DNS_CAPTURE.
	CapturesDNS bool
	// SelfDiscovery means that the proxy asks for the endpoints of its own service: node metadata
	// ENABLE_SELF_DISCOVERY.
	SelfDiscovery bool
	// HTTPProxyPort is the port of the HTTP proxy listener: node metadata HTTP_PROXY_PORT. If it is
	// zero, the mesh's setting applies.
	HTTPProxyPort uint32
	// Identity means that the proxy is authenticated, and so has a certificate of the mesh.
	Identity bool
	// ReadsSecrets means that the proxy may have restricted secrets of its namespace: those of a
	// cluster of Kubernetes that allows it.
	ReadsSecrets bool
	// Probe is the ReadinessProbe of the WorkloadGroup that the workload registered with, in
	// protobuf encoding. It is an empty text if the group has none, and zero if the workload did
	// not register with a group.
	Probe unique.Handle[string]
	// Metadata lists the metadata of the node that is text, sorted by key. EnvoyFilters match it.
	Metadata *intern.List[Label]
	// ProxyConfig is Istio's ProxyConfig that annotations of this WorkloadGroup contain, in protobuf
	// encoding. It is zero or an empty text if there is none.
	ProxyConfig unique.Handle[string]
	// Application is the port and path of the application's metrics, "9100/metrics", as annotations of
	// this WorkloadGroup say. It is empty if there are none.
	Application string
}

// metadata returns the metadata with that key. It is empty if there is none.
func (n Node) metadata(key string) string {
	for _, m := range n.Metadata.Items() {
		if m.Key == key {
			return m.Value
		}
	}
	return ""
}

// Facets are the facts that a proxy's resources depend on. Proxies with equal facets get equal
// resources. A fact that makes no difference to a proxy has its zero value.
type Facets struct {
	Type NodeType
	// Namespace is set only if the proxy's configuration depends on the namespace.
	Namespace string
	// Cluster is the proxy's cluster of Kubernetes, if services are from there: node metadata
	// CLUSTER_ID. Its clients use the virtual IPs of the cluster, and names without a namespace.
	Cluster string
	// Sidecar is the Sidecar that applies to the proxy. If it is nil, all visible services are in
	// scope.
	Sidecar *SidecarConfig
	// Gateways lists the servers that select the proxy (routers only), in order of precedence.
	Gateways *intern.List[GatewayServer]
	// Rules lists the DestinationRules whose workloadSelector selects the proxy.
	Rules *intern.List[*config.Object]
	// Own holds the addresses and inbound ports of the proxy. Nil for routers.
	Own *Own
	// RouteSources lists the conditional matches of routes (by source labels or namespace) that
	// apply to the proxy: pointers to HTTPMatchRequest, L4MatchAttributes or TLSMatchAttributes.
	RouteSources *intern.List[any]
	// Locality is set only if a destination's endpoints are ordered by it, or with SelfDiscovery.
	Locality registry.Locality
	// Network is set only if a destination's endpoints are ordered by it, or a network has gateways.
	Network string
	// FailoverLabels lists the proxy's labels that a destination's failoverPriority names, by key.
	FailoverLabels *intern.List[Label]
	// Interception is how traffic reaches the listeners.
	Interception Interception
	// Bind is the default address of outbound listeners: the first address of the proxy if that is
	// a loopback address, else 127.0.0.1 or ::1. Zero unless Interception is None.
	Bind netip.Addr
	// CapturesDNS means that clients of the proxy resolve hosts to their allocated addresses.
	CapturesDNS bool
	// SelfDiscovery means that the proxy, a sidecar, asks for the endpoints of its own service.
	SelfDiscovery bool
	// IPv6Only means that the proxy has no IPv4 address.
	IPv6Only bool
	// DualStack means that the proxy has an IPv4 address, and an IPv6 address that is not
	// link-local.
	DualStack bool
	// HTTPProxyPort is the port of the HTTP proxy listener. Zero if there is none.
	HTTPProxyPort uint32
	// Identity means that the proxy has a certificate of the mesh. Without one it cannot use mutual
	// TLS.
	Identity bool
	// Secrets holds the secrets of the proxy's namespace, with ReadsSecrets also the restricted ones. Nil
	// without an identity, and for sidecars without Rules: only gateways may have the secrets of other
	// DestinationRules.
	// Source: istio.io, ClientTLSSettings.credentialName.
	Secrets *secret.Namespace
	// Probe and Application are those of Node.
	Probe       unique.Handle[string]
	Application string
	// ProxyConfig and AgentConfig hold the settings of the proxy: the mesh's defaultConfig, the
	// ProxyConfig objects that apply to it, and the annotation of its WorkloadGroup. ProxyConfig has
	// what Envoy's resources depend on, AgentConfig what the agent applies. Nil if nothing is set.
	ProxyConfig, AgentConfig *mesh.ProxyConfig
	// PeerAuthentication, RequestAuthentication and AuthorizationPolicy list the objects of these
	// kinds in the proxy's and in the root namespace that select the proxy, sorted by CompareAge.
	PeerAuthentication    *intern.List[*config.Object]
	RequestAuthentication *intern.List[*config.Object]
	AuthorizationPolicy   *intern.List[*config.Object]
	// Telemetry lists the Telemetry objects that apply to the proxy: of the mesh, of its namespace and
	// of its labels, in this order, at most one of each.
	Telemetry *intern.List[*config.Object]
	// Patches lists those of the TrafficExtensions and EnvoyFilters that select the proxy, in the order
	// in which they apply.
	Patches *intern.List[Patch]
}

// Own holds the facts that are specific to one proxy. Equal values are one pointer.
type Own struct {
	// Addresses is Node.IPs.
	Addresses *intern.List[netip.Addr]
	// Inbound lists the service ports that the workload serves, by target port, then host.
	Inbound *intern.List[Inbound]
}

// Inbound is one service port that a workload serves.
type Inbound struct {
	Service *registry.Service
	Port    registry.Port
	// TargetPort is the port at which the workload listens.
	TargetPort uint32
	// Mutual means that the endpoint accepts mutual TLS.
	Mutual bool
	// Intercepted means that connections to every port of the endpoint reach its proxy.
	Intercepted bool
	// State is PortServed, PortClosed or PortLoopback. It is PortServed if Intercepted is set.
	State registry.PortState
}
