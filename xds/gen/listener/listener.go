package listener

import (
	"github.com/ashore-mesh/ashore/internal/feed"
	"github.com/ashore-mesh/ashore/internal/intern"
	"github.com/ashore-mesh/ashore/internal/memo"
	"github.com/ashore-mesh/ashore/push"
	"github.com/ashore-mesh/ashore/xds/gen/envoy"
	"github.com/ashore-mesh/ashore/xds/gen/layout"
	"github.com/ashore-mesh/ashore/xds/gen/workload"
	"github.com/ashore-mesh/ashore/xds/resource"
)

// Generator makes the listeners of proxies.
type Generator struct {
	layouts *layout.Layouts

	chains  chainLists
	routes  intern.Lists[*push.VirtualService]
	perList intern.Lists[*intern.List[*push.VirtualService]]
	sources intern.Lists[any]
	modes   intern.Lists[push.PortMode]

	bases     *memo.Func[listenerSettings, listenerBase]
	listeners *memo.Func[listenerSpec, madeListener]
}

// New makes a Generator.
func New(layouts *layout.Layouts) *Generator {
	return &Generator{layouts: layouts, bases: memo.New(newListenerBase), listeners: memo.New(buildListener)}
}

// madeListener is a listener, and what Envoy would refuse of it.
type madeListener struct {
	// resource is nil when the listener is left out.
	resource *resource.Resource
	refused  []feed.Problem
}

// Plans implements envoy.Kind: what equal proxies share, and the inbound side.
func (g *Generator) Plans(sc *push.Scope) (shared, own envoy.Plan) {
	base := g.bases.Get(settingsOf(sc))
	if sc.Type == push.Router {
		return gatewayListenersIn{generator: g, layout: g.layouts.Gateway(sc), base: base, routes: g.gatewayRoutes(sc),
			destinations: sc.Destinations}, nil
	}
	if sc.Own != nil {
		in := inboundListenersIn{generator: g, base: base, Workload: workload.Of(sc), modes: g.peerModesOf(sc)}
		in.bypassed = workload.BypassOf(sc, in.modes)
		own = in
	}
	return outboundListenersIn{generator: g, layout: g.layouts.Outbound(sc), base: base, routes: g.egressRoutes(sc),
		sources: g.connectionSources(sc), destinations: sc.Destinations}, own
}

// build turns specs into a layer with problems, and with what Envoy would refuse.
func (g *Generator) build(specs []listenerSpec, problems []feed.Problem) *envoy.Layer {
	layer := &envoy.Layer{}
	layer.Problems = problems
	var items []*resource.Resource
	for _, s := range specs {
		made := g.listeners.Get(s)
		layer.Held = append(layer.Held, made)
		layer.Problems = append(layer.Problems, made.refused...)
		if made.resource != nil {
			items = append(items, made.resource)
		}
	}
	layer.Fill(items)
	return layer
}

// egressRoutes lists, for each egress group, the VirtualServices that route connections.
func (g *Generator) egressRoutes(sc *push.Scope) *intern.List[*intern.List[*push.VirtualService]] {
	out := make([]*intern.List[*push.VirtualService], 0, sc.Egress.Len())
	for _, e := range sc.Egress.Items() {
		out = append(out, g.connectionRoutes(e.Routes))
	}
	return g.perList.Of(out)
}

// gatewayRoutes lists, for each server, the VirtualServices that route connections.
func (g *Generator) gatewayRoutes(sc *push.Scope) *intern.List[*intern.List[*push.VirtualService]] {
	out := make([]*intern.List[*push.VirtualService], 0, sc.Gateways.Len())
	for _, server := range sc.Gateways.Items() {
		out = append(out, g.connectionRoutes(server.Routes))
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
