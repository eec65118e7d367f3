package push

import (
	"slices"
	"strings"

	networking "istio.io/api/networking/v1alpha3"

	"github.com/ashore-mesh/ashore/config"
	"github.com/ashore-mesh/ashore/internal/intern"
	"github.com/ashore-mesh/ashore/internal/pmap"
	"github.com/ashore-mesh/ashore/registry"
)

// Scope is what proxies with the same facets see of a context. Immutable. A part that does not
// change keeps its pointer from context to context.
type Scope struct {
	Facets
	// Mesh holds the mesh-wide settings.
	Mesh *Mesh
	// Destinations lists the services that the proxy may call, with the DestinationRule of each.
	Destinations *Destinations
	// Egress lists the outbound groups of a sidecar: one for each egress listener of its Sidecar,
	// in order, or one for everything. Nil for routers.
	Egress *intern.List[*Egress]
	// Endpoints holds the endpoints of every service in the mesh, by key.
	Endpoints pmap.Map[registry.Key, *registry.EndpointList]
	// NetworkGateways tells which endpoints the proxy reaches through gateways of other networks. Nil if no
	// network has gateways.
	NetworkGateways *NetworkGateways
	// PeerAuthentications holds the PeerAuthentications of the mesh. Clients need them to know
	// which servers accept mutual TLS. Nil if there are none.
	PeerAuthentications *PeerPolicies
	// InboundListeners holds the inbound listeners of workloads without traffic interception. Nil
	// if there are none.
	InboundListeners *InboundListeners
	// Trust holds the trusted roots and the revocations. Nil if there is no certificate authority.
	Trust *Trust
	// Keys holds the public keys of token issuers. Nil if none were fetched.
	Keys *KeySets
}

// Destination is a service and how a client calls it.
type Destination struct {
	Service *registry.Service
	// Rule is the merged DestinationRule. If it is nil, the mesh's defaults apply.
	Rule *DestinationRule
	// Identities are the identities that its endpoints may have. Zero if the client has no
	// identity.
	Identities Identities
	// Forwarded means that an AUTO_PASSTHROUGH server of the router forwards TLS connections to the
	// service. Unrouted means that nothing else of the proxy calls it.
	Forwarded, Unrouted bool
}

// Destinations is an immutable list of destinations, hosts unique, sorted by host. Equal lists are
// one pointer.
type Destinations struct{ list *intern.List[Destination] }

// Items returns the destinations, sorted by host. The caller must not change them.
func (d *Destinations) Items() []Destination {
	if d == nil {
		return nil
	}
	return d.list.Items()
}

func byHost(d Destination, host string) int { return strings.Compare(d.Service.Host, host) }

// Get returns the destination with exactly that host, and whether there is one.
func (d *Destinations) Get(host string) (Destination, bool) {
	items := d.Items()
	i, ok := slices.BinarySearchFunc(items, host, byHost)
	if !ok {
		return Destination{}, false
	}
	return items[i], true
}

// DestinationRule is merged from the DestinationRules of one host that apply to one client.
type DestinationRule struct {
	// Spec is the merged rule. Its host is a full name.
	Spec *networking.DestinationRule
	// From lists the merged objects in order of precedence.
	From []*config.Object
}

// VirtualService is a VirtualService object with every short name in it (hosts, destinations,
// gateways) resolved.
type VirtualService struct {
	Object *config.Object
	// Spec has the routes of delegates in place of those that name them.
	Spec *networking.VirtualService
	// Delegates are the VirtualServices whose routes are in Spec, in the order of the routes.
	Delegates []*VirtualService
	// Contradicting are the routes of Delegates that are not in Spec, because no request fulfils both
	// their match and that of the route that delegates.
	Contradicting []Field

	own        *networking.VirtualService // without the routes of delegates
	exportTo   []string                   // with the mesh's default
	conditions []routeMatch               // the matches that do not apply to all clients
}

// Field is a field of an object, such as "spec.http[1]".
type Field struct {
	Object *config.Object
	Path   string
}

// Egress is a group of services that a sidecar may call, and the listener for them.
type Egress struct {
	// Listener is the Sidecar's egress listener. Nil for the default, which serves all ports.
	Listener *networking.IstioEgressListener
	// Services lists the services that the group imports, sorted by host, hosts unique.
	Services *intern.List[*registry.Service]
	// Routes lists the imported VirtualServices for sidecars ("mesh"), in order of precedence.
	Routes *intern.List[*VirtualService]
}

// SidecarConfig is a Sidecar object that applies to some proxies. Equal values are one pointer.
type SidecarConfig struct {
	Object *config.Object
	Spec   *networking.Sidecar
}

// GatewayServer is one server of a Gateway, for the routers that it selects. Comparable.
type GatewayServer struct {
	Gateway *config.Object
	Server  *networking.Server
	// Port is the port at which the routers listen for the server.
	Port uint32
	// Routes lists the visible VirtualServices that name the Gateway, in order of precedence.
	// xds/gen checks whether their hosts match hosts of the server.
	Routes *intern.List[*VirtualService]
}
