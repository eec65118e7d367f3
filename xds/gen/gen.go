package gen

import (
	"github.com/ashore-mesh/ashore/push"
	"github.com/ashore-mesh/ashore/xds/resource"
)

// Generator makes the resources of every type. What it remembers never changes an answer; one
// Generator serves all proxies, so that equal ones share their resources. Safe for concurrent use.
type Generator struct {
	clusters   *clusters
	secrets    *secrets
	endpoints  *endpoints
	listeners  *listeners
	routes     *routeTables
	extensions *extensions
	names      nameTables
	bundles    bundles
	probes     probes
}

// New makes a Generator.
func New() *Generator {
	orders, layouts := newOrderings(), newListeners()
	return &Generator{
		clusters:   newClusters(orders),
		secrets:    newSecrets(),
		endpoints:  newEndpoints(orders),
		listeners:  layouts,
		routes:     newRouteTables(layouts),
		extensions: newExtensions(),
		names:      newNameTables(),
		bundles:    newBundles(),
		probes:     newProbes(),
	}
}

// Set returns the resources of one type that proxies of a scope have; the empty set for a type that
// the Generator does not make. Equal inputs of the type give the same layers, by pointer, for as
// long as anybody holds them.
func (g *Generator) Set(typeURL string, sc *push.Scope) resource.Set {
	switch typeURL {
	case ClusterType:
		return g.clusters.set(sc)
	case SecretType:
		return g.secrets.set(sc)
	case EndpointType:
		return g.endpoints.set(sc)
	case ListenerType:
		return g.listeners.set(sc)
	case RouteType:
		return g.routes.set(sc)
	case ExtensionConfigType:
		return g.extensions.set(sc)
	case NameTableType:
		return g.names.set(sc)
	case ProxyConfigType:
		return g.bundles.set(sc)
	case ProbeType:
		return g.probes.set(sc)
	default:
		return resource.Set{}
	}
}
