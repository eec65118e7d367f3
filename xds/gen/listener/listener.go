package listener

import (
	"github.com/ashore-mesh/ashore/internal/feed"
	"github.com/ashore-mesh/ashore/internal/intern"
	"github.com/ashore-mesh/ashore/internal/memo"
	"github.com/ashore-mesh/ashore/push"
	"github.com/ashore-mesh/ashore/xds/gen/destination"
	"github.com/ashore-mesh/ashore/xds/gen/envoy"
	"github.com/ashore-mesh/ashore/xds/gen/layout"
	"github.com/ashore-mesh/ashore/xds/gen/telemetry"
	"github.com/ashore-mesh/ashore/xds/gen/workload"
)

// Generator makes the listeners of proxies.
type Generator struct {
	layouts   *layout.Layouts
	indexes   *destination.Indexes
	telemetry telemetry.Reader

	chains  chainLists
	routes  intern.Lists[*push.VirtualService]
	perList intern.Lists[*intern.List[*push.VirtualService]]
	sources intern.Lists[any]
	modes   intern.Lists[push.PortMode]

	bases     *memo.Func[listenerSettings, listenerBase]
	listeners *memo.Func[listenerSpec, envoy.Part]
}

// New makes a Generator.
func New(layouts *layout.Layouts, indexes *destination.Indexes) *Generator {
	return &Generator{layouts: layouts, indexes: indexes, bases: memo.New(newListenerBase), listeners: memo.New(buildListener)}
}

// Plans implements envoy.Kind: what equal proxies share, and the inbound side.
func (g *Generator) Plans(sc *push.Scope) (shared, own envoy.Plan) {
	base := g.bases.Get(g.settingsOf(sc))
	if sc.Type == push.Router {
		return gatewayListenersIn{generator: g, layout: g.layouts.Gateway(sc), base: base, routes: g.routesOf(sc),
			destinations: sc.Destinations}, nil
	}
	if sc.Own != nil {
		in := inboundListenersIn{generator: g, base: base, Workload: workload.Of(sc), modes: g.peerModesOf(sc)}
		in.bypassed = workload.BypassOf(sc, in.modes)
		own = in
	}
	return outboundListenersIn{generator: g, layout: g.layouts.Outbound(sc), base: base, routes: g.routesOf(sc),
		sources: g.connectionSources(sc), destinations: sc.Destinations}, own
}

// build turns specs into a layer. Its problems are those of its listeners, and the given ones.
func (g *Generator) build(specs []listenerSpec, problems []feed.Problem) *envoy.Layer {
	parts := make([]*envoy.Part, len(specs))
	for i, s := range specs {
		parts[i] = g.listeners.Get(s)
	}
	return envoy.LayerOf(parts, problems...)
}

// routesOf lists, for each server of a router and each egress group of a sidecar, the
// VirtualServices that route connections.
func (g *Generator) routesOf(sc *push.Scope) *intern.List[*intern.List[*push.VirtualService]] {
	var out []*intern.List[*push.VirtualService]
	if sc.Type == push.Router {
		for _, s := range sc.Gateways.Items() {
			out = append(out, g.connectionRoutes(s.Routes))
		}
		return g.perList.Of(out)
	}
	for _, e := range sc.Egress.Items() {
		out = append(out, g.connectionRoutes(e.Routes))
	}
	return g.perList.Of(out)
}

func (g *Generator) connectionRoutes(all *intern.List[*push.VirtualService]) *intern.List[*push.VirtualService] {
	var out []*push.VirtualService
	for _, vs := range all.Items() {
		if routesConnections(vs) {
			out = append(out, vs)
		}
	}
	return g.routes.Of(out)
}

// connectionSources are the conditional matches of TCP and TLS routes that hold for the proxy.
func (g *Generator) connectionSources(sc *push.Scope) *intern.List[any] {
	var out []any
	for _, s := range sc.RouteSources.Items() {
		if matchesConnections(s) {
			out = append(out, s)
		}
	}
	return g.sources.Of(out)
}
