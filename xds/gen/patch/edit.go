package patch

import (
	"slices"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	"google.golang.org/protobuf/proto"
	networking "istio.io/api/networking/v1alpha3"

	"github.com/ashore-mesh/ashore/config"
	"github.com/ashore-mesh/ashore/xds/gen/envoy"
)

// edit applies patches to one resource.
type edit struct {
	side    side
	patches map[networking.EnvoyFilter_ApplyTo][]*patch // in order
	touched map[*patch]bool                             // those that changed something
	err     error                                       // what Envoy would refuse of a wrapped message
}

func newEdit(of side, patches []*patch) *edit {
	e := &edit{side: of, patches: map[networking.EnvoyFilter_ApplyTo][]*patch{}, touched: map[*patch]bool{}}
	for _, p := range patches {
		e.patches[p.ApplyTo] = append(e.patches[p.ApplyTo], p)
	}
	return e
}

// check keeps the first error.
func (e *edit) check(err error) {
	if e.err == nil {
		e.err = err
	}
}

// where are the patches of what is at a place.
func (e *edit) where(to networking.EnvoyFilter_ApplyTo, matches func(*patch) bool) []*patch {
	var out []*patch
	for _, p := range e.patches[to] {
		if matches(p) {
			out = append(out, p)
		}
	}
	return out
}

// insertions are the patches that add elements, and others all other ones.
func insertions(patches []*patch) (inserting, others []*patch) {
	for _, p := range patches {
		if config.PatchInserts(p.operation) {
			inserting = append(inserting, p)
		} else {
			others = append(others, p)
		}
	}
	return inserting, others
}

// arrange adds, replaces and removes elements of a list, in the order of the patches.
func arrange[E proto.Message](e *edit, list []E, patches []*patch, matches func(E, *patch) bool) []E {
	for _, p := range patches {
		value, _ := proto.Clone(p.value).(E)
		at := slices.IndexFunc(list, func(x E) bool { return matches(x, p) })
		switch p.insertion() {
		case networking.EnvoyFilter_Patch_ADD:
			at = len(list)
		case networking.EnvoyFilter_Patch_INSERT_FIRST:
			if at >= 0 || !p.names || config.PatchesFilter(p.ApplyTo) {
				at = 0
			}
		case networking.EnvoyFilter_Patch_INSERT_BEFORE:
			if !p.names {
				at = 0
			}
		case networking.EnvoyFilter_Patch_INSERT_AFTER:
			if !p.names {
				at = len(list)
			} else if at >= 0 {
				at++
			}
		case networking.EnvoyFilter_Patch_REPLACE:
			if at >= 0 {
				list[at] = value
				e.touched[p] = true
			}
			continue
		case networking.EnvoyFilter_Patch_REMOVE:
			if at >= 0 {
				list = slices.DeleteFunc(list, func(x E) bool { return matches(x, p) })
				e.touched[p] = true
			}
			continue
		default:
			continue
		}
		if at >= 0 {
			list = slices.Insert(list, at, value)
			e.touched[p] = true
		}
	}
	return list
}

// insertion is the operation; where the order of elements means nothing, ADD for any insertion.
func (p *patch) insertion() networking.EnvoyFilter_Patch_Operation {
	ordered := config.PatchesFilter(p.ApplyTo) || p.ApplyTo == networking.EnvoyFilter_HTTP_ROUTE
	if !ordered && config.PatchInserts(p.operation) {
		return networking.EnvoyFilter_Patch_ADD
	}
	return p.operation
}

// mergeAll merges patches into the elements that they match.
func mergeAll[E proto.Message](e *edit, list []E, patches []*patch, matches func(E, *patch) bool) {
	for _, x := range list {
		for _, p := range patches {
			if config.PatchMerges(p.operation) && matches(x, p) {
				before := proto.Clone(x)
				err := merge(x, p)
				e.check(err)
				if err != nil || !proto.Equal(before, x) {
					e.touched[p] = true
				}
			}
		}
	}
}

// filters changes a list of filters: what is inserted can be merged into.
func filters[E proto.Message](e *edit, list []E, patches []*patch, matches func(E, *patch) bool) []E {
	list = arrange(e, list, patches, matches)
	mergeAll(e, list, patches, matches)
	return list
}

// parts changes a list of what has parts, which inside changes: what is inserted stays as it is.
func parts[E proto.Message](e *edit, list []E, patches []*patch, matches func(E, *patch) bool, inside func(E)) []E {
	inserting, others := insertions(patches)
	mergeAll(e, list, others, matches)
	list = arrange(e, list, others, matches)
	for _, x := range list {
		inside(x)
	}
	return arrange(e, list, inserting, matches)
}

// resource changes a resource. It reports whether the resource stays.
func (e *edit) resource(m proto.Message) bool {
	switch m := m.(type) {
	case *clusterv3.Cluster:
		return e.whole(m, e.where(networking.EnvoyFilter_CLUSTER, func(p *patch) bool {
			return matchesCluster(p.GetMatch().GetCluster(), clusterNameOf(m.Name), servicesOf(m))
		}))
	case *listenerv3.Listener:
		return e.listener(m)
	case *routev3.RouteConfiguration:
		e.routes(m)
	}
	return true
}

// whole merges patches into m. It reports whether none removes m.
func (e *edit) whole(m proto.Message, patches []*patch) bool {
	list := []proto.Message{m}
	all := func(proto.Message, *patch) bool { return true }
	mergeAll(e, list, patches, all)
	return len(arrange(e, list, patches, all)) > 0
}

// listener changes a listener. It reports whether it stays.
func (e *edit) listener(l *listenerv3.Listener) bool {
	here := func(p *patch) bool { return p.matchesListener(l) }
	if !e.whole(l, e.where(networking.EnvoyFilter_LISTENER, here)) {
		return false
	}
	l.ListenerFilters = filters(e, l.ListenerFilters, e.where(networking.EnvoyFilter_LISTENER_FILTER, here),
		func(f *listenerv3.ListenerFilter, p *patch) bool {
			name := p.GetMatch().GetListener().GetListenerFilter()
			return name == "" || name == f.Name
		})
	inChain := func(c *listenerv3.FilterChain, p *patch) bool { return p.matchesChain(l, c) }
	inside := func(c *listenerv3.FilterChain) { e.chain(l, c) }
	chains := e.where(networking.EnvoyFilter_FILTER_CHAIN, here)
	if c := l.DefaultFilterChain; c != nil {
		_, others := insertions(chains)
		l.DefaultFilterChain = nil
		for _, c := range parts(e, []*listenerv3.FilterChain{c}, others, inChain, inside) {
			l.DefaultFilterChain = c
		}
	}
	l.FilterChains = parts(e, l.FilterChains, chains, inChain, inside)
	return true
}

// chain changes the filters of a filter chain.
func (e *edit) chain(l *listenerv3.Listener, c *listenerv3.FilterChain) {
	here := func(p *patch) bool { return p.matchesListener(l) && p.matchesChain(l, c) }
	named := func(f *listenerv3.Filter, p *patch) bool {
		want := p.GetMatch().GetListener().GetFilterChain().GetFilter()
		return want == nil || want.Name == f.Name
	}
	c.Filters = filters(e, c.Filters, e.where(networking.EnvoyFilter_NETWORK_FILTER, here), named)
	for _, f := range c.Filters {
		e.manager(f, e.where(networking.EnvoyFilter_HTTP_FILTER, func(p *patch) bool { return here(p) && named(f, p) }))
	}
}

// manager changes the HTTP filters and the routes of a network filter that has such.
func (e *edit) manager(f *listenerv3.Filter, patches []*patch) {
	m := &hcmv3.HttpConnectionManager{}
	hasRoutes := len(e.patches[networking.EnvoyFilter_ROUTE_CONFIGURATION])+
		len(e.patches[networking.EnvoyFilter_VIRTUAL_HOST])+len(e.patches[networking.EnvoyFilter_HTTP_ROUTE]) > 0
	if len(patches) == 0 && !hasRoutes || f.GetTypedConfig().UnmarshalTo(m) != nil {
		return
	}
	m.HttpFilters = filters(e, m.HttpFilters, patches, func(f *hcmv3.HttpFilter, p *patch) bool {
		want := p.GetMatch().GetListener().GetFilterChain().GetFilter().GetSubFilter()
		return want == nil || want.Name == f.Name
	})
	if rc := m.GetRouteConfig(); rc != nil {
		e.routes(rc)
	}
	e.check(m.Validate())
	f.ConfigType = &listenerv3.Filter_TypedConfig{TypedConfig: envoy.Packed(m)}
}

// routes changes a route configuration.
func (e *edit) routes(rc *routev3.RouteConfiguration) {
	here := func(p *patch) bool { return matchesRoutes(p.GetMatch().GetRouteConfiguration(), rc.Name, e.side) }
	e.whole(rc, e.where(networking.EnvoyFilter_ROUTE_CONFIGURATION, here))
	routes := e.where(networking.EnvoyFilter_HTTP_ROUTE, here)
	rc.VirtualHosts = parts(e, rc.VirtualHosts, e.where(networking.EnvoyFilter_VIRTUAL_HOST, here), matchesHost,
		func(h *routev3.VirtualHost) {
			inHost := slices.DeleteFunc(slices.Clone(routes), func(p *patch) bool { return !matchesHost(h, p) })
			h.Routes = parts(e, h.Routes, inHost, matchesRoute, func(*routev3.Route) {})
		})
}
