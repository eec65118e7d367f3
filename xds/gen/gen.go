package gen

import (
	"slices"
	"strings"

	"github.com/ashore-mesh/ashore/internal/feed"
	"github.com/ashore-mesh/ashore/push"
	"github.com/ashore-mesh/ashore/xds/gen/access"
	"github.com/ashore-mesh/ashore/xds/gen/agent"
	"github.com/ashore-mesh/ashore/xds/gen/cluster"
	"github.com/ashore-mesh/ashore/xds/gen/destination"
	"github.com/ashore-mesh/ashore/xds/gen/endpoint"
	"github.com/ashore-mesh/ashore/xds/gen/envoy"
	"github.com/ashore-mesh/ashore/xds/gen/layout"
	"github.com/ashore-mesh/ashore/xds/gen/listener"
	"github.com/ashore-mesh/ashore/xds/gen/route"
	"github.com/ashore-mesh/ashore/xds/gen/secret"
	"github.com/ashore-mesh/ashore/xds/resource"
)

// Generator makes the resources of every type. What it remembers never changes an answer; one
// Generator serves all proxies, so that equal ones share their resources. Safe for concurrent use.
type Generator struct {
	clusters   *cluster.Generator
	secrets    *secret.Generator
	endpoints  *endpoint.Generator
	listeners  *listener.Generator
	routes     *route.Generator
	extensions *access.Generator
	names      agent.NameTables
	bundles    agent.TrustBundles
	probes     agent.Probes
}

// New makes a Generator.
func New() *Generator {
	orders, layouts := destination.NewOrderings(), layout.New()
	return &Generator{
		clusters:   cluster.New(orders),
		secrets:    secret.New(),
		endpoints:  endpoint.New(orders),
		listeners:  listener.New(layouts),
		routes:     route.New(layouts),
		extensions: access.New(),
		names:      agent.NewNameTables(),
		bundles:    agent.NewTrustBundles(),
		probes:     agent.NewProbes(),
	}
}

// Set returns the resources of one type that proxies of a scope have; the empty set for a type that
// the Generator does not make. Equal inputs of the type give the same layers, by pointer, for as
// long as anybody holds them.
func (g *Generator) Set(typeURL string, sc *push.Scope) resource.Set {
	switch typeURL {
	case resource.ClusterType:
		return g.clusters.Set(sc)
	case resource.SecretType:
		return g.secrets.Set(sc)
	case resource.EndpointType:
		return g.endpoints.Set(sc)
	case resource.ListenerType:
		return g.listeners.Set(sc)
	case resource.RouteType:
		return g.routes.Set(sc)
	case resource.ExtensionConfigType:
		return g.extensions.Set(sc)
	case resource.NameTableType:
		return g.names.Set(sc)
	case agent.ProxyConfigType:
		return g.bundles.Set(sc)
	case agent.ProbeType:
		return g.probes.Set(sc)
	default:
		return resource.Set{}
	}
}

// Refused are the parts that Envoy would refuse, and that refuse traffic instead, among those that
// somebody holds. Each is an error in Ashore's validation: with it, the object would not have been
// taken. Warnings among them are of proxies that lack what mutual TLS needs. Servers that gateways
// leave out because services map their ports are errors too. It costs as much as there are of them,
// not as the mesh is large: it may be asked often.
func (g *Generator) Refused() []feed.Problem {
	out := slices.Concat(g.routes.Refused(), g.clusters.Refused(), g.listeners.Refused())
	slices.SortFunc(out, func(a, b feed.Problem) int { return strings.Compare(a.Object+a.Text, b.Object+b.Text) })
	return slices.CompactFunc(out, func(a, b feed.Problem) bool { return a.Object == b.Object && a.Text == b.Text })
}

// Capabilities reduces the names of a client's extensions (Node.extensions) to what generation asks
// about. A client that names none at all does not tell, and is taken for a stock Envoy.
func (g *Generator) Capabilities(extensions []string) push.Capabilities {
	return envoy.CapabilitiesOf(extensions)
}
