package route

import (
	"cmp"
	"slices"
	"strings"

	networking "istio.io/api/networking/v1alpha3"

	"github.com/ashore-mesh/ashore/internal/intern"
	"github.com/ashore-mesh/ashore/push"
	"github.com/ashore-mesh/ashore/registry"
)

// routeInfo is what planning needs to know of a VirtualService, read once.
type routeInfo struct {
	vs *push.VirtualService
	// destinations are those of its HTTP routes in order, mirrors included.
	destinations []*networking.Destination
	// conditional says that some of its HTTP matches hold for some sources only.
	conditional bool
}

func newRouteInfo(vs *push.VirtualService) *routeInfo {
	info := &routeInfo{vs: vs, destinations: httpDestinations(vs.Spec)}
	for _, r := range vs.Spec.Http {
		for _, m := range r.Match {
			info.conditional = info.conditional || len(m.SourceLabels) > 0 || m.SourceNamespace != ""
		}
	}
	return info
}

// httpDestinations lists the destinations of HTTP routes in a fixed order.
func httpDestinations(spec *networking.VirtualService) []*networking.Destination {
	var out []*networking.Destination
	add := func(d *networking.Destination) {
		if d != nil {
			out = append(out, d)
		}
	}
	for _, r := range spec.Http {
		for _, d := range r.Route {
			add(d.GetDestination())
		}
		add(r.Mirror)
		for _, m := range r.Mirrors {
			add(m.GetDestination())
		}
	}
	return out
}

// routeIndex finds the VirtualServices for a host. Made from a list of them when it changed.
type routeIndex struct {
	// byHost are those that name exactly that host, wildcard or not, in order of precedence.
	byHost map[string][]*routeInfo
	// wild are those that name wildcards, the longest first, in order of precedence among equals.
	wild []wildRoute
	// services are the hosts of services that take requests at some port.
	services map[string]bool
	// foreign are those that name a host that no service has, in order of precedence.
	foreign []*routeInfo
}

// wildRoute is a VirtualService for all hosts that end alike.
type wildRoute struct {
	suffix string // what follows the "*"
	info   *routeInfo
}

func newRouteIndex(e *push.Egress) *routeIndex {
	x := &routeIndex{byHost: map[string][]*routeInfo{}, services: make(map[string]bool, e.Services.Len())}
	for _, s := range e.Services.Items() {
		if slices.ContainsFunc(s.Ports, func(p registry.Port) bool { return routable(p.Protocol) }) {
			x.services[s.Host] = true
		}
	}
	for _, vs := range e.Routes.Items() {
		info := newRouteInfo(vs)
		if slices.ContainsFunc(vs.Spec.Hosts, func(h string) bool { return !x.services[h] }) {
			x.foreign = append(x.foreign, info)
		}
		for _, h := range vs.Spec.Hosts {
			x.byHost[h] = append(x.byHost[h], info)
			if suffix, ok := strings.CutPrefix(h, "*"); ok {
				x.wild = append(x.wild, wildRoute{suffix, info})
			}
		}
	}
	slices.SortStableFunc(x.wild, func(a, b wildRoute) int { return cmp.Compare(len(b.suffix), len(a.suffix)) })
	return x
}

// candidates yields the VirtualServices that speak for a host: those that name it, then those whose
// wildcard covers it, the most specific first; of equal ones in order of precedence.
// Source: istio.io, VirtualService.hosts.
func (x *routeIndex) candidates(host string) func(yield func(*routeInfo) bool) {
	return func(yield func(*routeInfo) bool) {
		for _, info := range x.byHost[host] {
			if !yield(info) {
				return
			}
		}
		name := strings.TrimPrefix(host, "*")
		for _, w := range x.wild {
			if strings.HasSuffix(name, w.suffix) && !yield(w.info) {
				return
			}
		}
	}
}

// applies says whether a VirtualService has a route for requests to port that come through gateway
// from a proxy for which the conditions in sources hold.
func applies(spec *networking.VirtualService, port uint32, gateway string, sources *intern.List[any]) bool {
	for _, r := range spec.Http {
		if len(r.Match) == 0 {
			return true
		}
		for _, m := range r.Match {
			if matchApplies(m, port, gateway, sources) {
				return true
			}
		}
	}
	return false
}

// matchApplies says whether what a match asks of port, gateway and source holds: all of it must.
func matchApplies(m *networking.HTTPMatchRequest, port uint32, gateway string, sources *intern.List[any]) bool {
	if m.Port != 0 && m.Port != port {
		return false
	}
	if len(m.Gateways) > 0 && !slices.Contains(m.Gateways, gateway) {
		return false
	}
	if len(m.SourceLabels) > 0 || m.SourceNamespace != "" {
		return slices.Contains(sources.Items(), any(m))
	}
	return true
}
