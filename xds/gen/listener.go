package gen

import (
	"github.com/ashore-mesh/ashore/internal/feed"
	"github.com/ashore-mesh/ashore/internal/intern"
	"github.com/ashore-mesh/ashore/internal/memo"
	"github.com/ashore-mesh/ashore/push"
	"github.com/ashore-mesh/ashore/xds/resource"
)

// listeners makes the listeners of proxies.
type listeners struct {
	groups  *intern.Lists[egressGroup]
	servers *intern.Lists[gatewayServer]
	routes  *intern.Lists[*push.VirtualService]
	perList *intern.Lists[*intern.List[*push.VirtualService]]
	sources *intern.Lists[any]
	items   *intern.Lists[*madeListener]
	modes   *intern.Lists[push.PortMode]

	bases     *memo.Func[listenerSettings, listenerBase]
	outbounds *memo.Func[outboundIn, outboundLayout]
	gateways  *memo.Func[gatewayIn, gatewayLayout]
	resources *memo.Func[listenerSpec, madeListener]
	layers    *memo.Func[*intern.List[*madeListener], listenerLayer]

	bypasses *bypasses

	// These return what layers returned, so that an input is remembered for as long as its layer is
	// used.
	outbound *memo.Func[outboundListenersIn, listenerLayer]
	inbound  *memo.Func[inboundListenersIn, listenerLayer]
	gateway  *memo.Func[gatewayListenersIn, listenerLayer]
}

func newListeners() *listeners {
	chains := &chainLists{}
	l := &listeners{
		groups:  &intern.Lists[egressGroup]{},
		servers: &intern.Lists[gatewayServer]{},
		routes:  &intern.Lists[*push.VirtualService]{},
		perList: &intern.Lists[*intern.List[*push.VirtualService]]{},
		sources: &intern.Lists[any]{},
		items:   &intern.Lists[*madeListener]{},
		modes:   &intern.Lists[push.PortMode]{},

		bases:     memo.New(newListenerBase),
		outbounds: memo.New(layOutOutbound),
		gateways:  memo.New(layOutGateways),
		resources: memo.NewMarking(buildListener, (*madeListener).isRefused),
		layers:    memo.New(newListenerLayer),
		bypasses:  &bypasses{},
	}
	l.outbound = memo.New(func(in outboundListenersIn) *listenerLayer { return l.build(planOutbound(chains, in)) })
	l.inbound = memo.New(func(in inboundListenersIn) *listenerLayer { return l.build(planInbound(chains, in)) })
	l.gateway = memo.New(func(in gatewayListenersIn) *listenerLayer { return l.build(planGateways(chains, in)) })
	return l
}

// madeListener is a listener, and what Envoy would refuse of it.
type madeListener struct {
	// resource is nil when the listener is left out.
	resource *resource.Resource
	refused  []feed.Problem
	// workload is the one that bypassed is about.
	workload string
	bypassed bypass
}

func (l *madeListener) isRefused() bool { return len(l.refused) > 0 }

// listenerLayer is a layer of listeners together with what is known of them. Whoever holds the
// layer holds all of it (a pointer into a struct keeps the struct).
type listenerLayer struct {
	resource.Layer
	made *intern.List[*madeListener]
}

func newListenerLayer(made *intern.List[*madeListener]) *listenerLayer {
	items := make([]*resource.Resource, 0, made.Len())
	for _, m := range made.Items() {
		if m.resource != nil {
			items = append(items, m.resource)
		}
	}
	return &listenerLayer{Layer: *resource.NewLayer(items), made: made}
}

// set returns the listeners of a scope: what equal proxies share, and the inbound side.
func (l *listeners) set(sc *push.Scope) resource.Set {
	base := l.bases.Get(settingsOf(sc))
	if sc.Type == push.Router {
		in := gatewayInOf(l.servers, sc)
		return resource.Set{Shared: &l.gateway.Get(gatewayListenersIn{
			layout:       l.gateways.Get(in),
			base:         base,
			servers:      in.servers,
			routes:       l.gatewayRoutes(sc),
			destinations: sc.Destinations,
		}).Layer}
	}
	out := resource.Set{Shared: &l.outbound.Get(outboundListenersIn{
		layout:       l.outbounds.Get(outboundInOf(l.groups, sc)),
		base:         base,
		routes:       l.egressRoutes(sc),
		sources:      l.connectionSources(sc),
		destinations: sc.Destinations,
	}).Layer}
	if sc.Own != nil {
		in := inboundListenersIn{base: base, own: sc.Own, sidecar: sc.Sidecar, modes: l.peerModesOf(sc)}
		in.bypassed = bypassOf(sc, in.modes)
		out.Own = &l.inbound.Get(in).Layer
		l.bypasses.set(in.workload(), in.bypassed)
	}
	return out
}

// build turns specs into a layer; equal resources make one layer.
func (l *listeners) build(specs []listenerSpec) *listenerLayer {
	items := make([]*madeListener, 0, len(specs))
	for _, s := range specs {
		items = append(items, l.resources.Get(s))
	}
	return l.layers.Get(l.items.Of(items))
}

// egressRoutes lists, for each egress group, the VirtualServices that route connections.
func (l *listeners) egressRoutes(sc *push.Scope) *intern.List[*intern.List[*push.VirtualService]] {
	out := make([]*intern.List[*push.VirtualService], 0, sc.Egress.Len())
	for _, e := range sc.Egress.Items() {
		out = append(out, l.connectionRoutes(e.Routes))
	}
	return l.perList.Of(out)
}

// gatewayRoutes lists, for each server, the VirtualServices that route connections.
func (l *listeners) gatewayRoutes(sc *push.Scope) *intern.List[*intern.List[*push.VirtualService]] {
	out := make([]*intern.List[*push.VirtualService], 0, sc.Gateways.Len())
	for _, g := range sc.Gateways.Items() {
		out = append(out, l.connectionRoutes(g.Routes))
	}
	return l.perList.Of(out)
}

func (l *listeners) connectionRoutes(all *intern.List[*push.VirtualService]) *intern.List[*push.VirtualService] {
	var out []*push.VirtualService
	for _, vs := range all.Items() {
		if routesConnections(vs) {
			out = append(out, vs)
		}
	}
	return l.routes.Of(out)
}

// connectionSources are the conditional matches of TCP and TLS routes that hold for the proxy.
func (l *listeners) connectionSources(sc *push.Scope) *intern.List[any] {
	var out []any
	for _, s := range sc.RouteSources.Items() {
		if matchesConnections(s) {
			out = append(out, s)
		}
	}
	return l.sources.Of(out)
}
