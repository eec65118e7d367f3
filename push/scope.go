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

// Scope is what proxies of the same facets see of a context. Immutable. Each part keeps its pointer
// from context to context while it does not change.
type Scope struct {
	Facets
	// Mesh are the mesh-wide settings.
	Mesh *Mesh
	// Destinations are all services that the proxy may call, with the DestinationRule of each.
	Destinations *Destinations
	// Egress are the groups of a sidecar's outbound side: one for each egress listener of its
	// Sidecar in order, or one for everything. Nil for routers.
	Egress *intern.List[*Egress]
	// Endpoints are those of every service in the mesh, by key.
	Endpoints pmap.Map[registry.Key, *registry.EndpointList]
	// PeerAuthentications are all of the mesh: clients need them to know which servers accept
	// mutual TLS. Nil: there are none.
	PeerAuthentications *PeerPolicies
	// InboundListeners are the inbound listeners of workloads to which no traffic is redirected.
	// Nil: there are none.
	InboundListeners *InboundListeners
	// Trust are the trusted roots and the revocations; nil: there is no certificate authority.
	Trust *Trust
	// Keys are the public keys of token issuers; nil: none were fetched.
	Keys *KeySets
}

// Destination is a service and how a client calls it.
type Destination struct {
	Service *registry.Service
	// Rule is the merged DestinationRule; nil: the mesh's defaults apply.
	Rule *DestinationRule
	// Identities are the identities that its endpoints may have. Zero for clients without an
	// identity of their own.
	Identities Identities
}

// Destinations is an immutable list of destinations, hosts unique, sorted by host. Equal lists are
// one pointer.
type Destinations struct{ list *intern.List[Destination] }

// Items are the destinations in the order of their hosts, not to be changed.
func (d *Destinations) Items() []Destination {
	if d == nil {
		return nil
	}
	return d.list.Items()
}

// Get returns the destination of exactly that host, and whether there is one.
func (d *Destinations) Get(host string) (Destination, bool) {
	items := d.Items()
	byHost := func(d Destination, host string) int { return strings.Compare(d.Service.Host, host) }
	i, ok := slices.BinarySearchFunc(items, host, byHost)
	if !ok {
		return Destination{}, false
	}
	return items[i], true
}

// DestinationRule is made of all DestinationRules of one host that apply to one client.
type DestinationRule struct {
	// Spec is the merged rule; its host is a full name.
	Spec *networking.DestinationRule
	// From are the objects that it was merged from, the most important first.
	From []*config.Object
}

// VirtualService is a VirtualService object with every short name in it (hosts, destinations,
// gateways) written out.
type VirtualService struct {
	Object *config.Object
	Spec   *networking.VirtualService

	conditions []condition // its matches that apply to some clients only
}

// Egress is one group of what a sidecar may call, and where it listens for it.
type Egress struct {
	// Listener is the Sidecar's egress listener; nil: the default, which takes all ports.
	Listener *networking.IstioEgressListener
	// Services are those that the group imports, sorted by host, hosts unique.
	Services *intern.List[*registry.Service]
	// Routes are the VirtualServices for the sidecar ("mesh") that it imports, in order of
	// precedence: older first.
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
	// Port is where the routers listen for the server.
	Port uint32
	// Routes are the VirtualServices that name the gateway and may attach to it, in order of
	// precedence (older first). The generator checks whether their hosts match hosts of the server.
	Routes *intern.List[*VirtualService]
}
