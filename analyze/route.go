package analyze

import (
	"fmt"
	"slices"
	"strings"

	"google.golang.org/protobuf/proto"
	networking "istio.io/api/networking/v1alpha3"

	"github.com/ashore-mesh/ashore/push"
)

// routePlace is where routes of VirtualServices meet: one host of sidecars, or of a port of
// gateways. Comparable.
type routePlace struct {
	port listenPort // zero: sidecars
	host string     // in lower case
	kind string     // "http" or "tcp"
}

// catchAllRoute is a route of a VirtualService that leaves nothing to other routes of its place.
type catchAllRoute struct {
	*push.VirtualService
	exportedTo []string
	gateway    *gateway // nil: sidecars
	field      string   // "spec.http[1]"
}

// routeConflicts reports VirtualServices without effect because another one for the same host,
// gateway and kind of routes takes precedence. It compares only catch-all routes: those that apply
// to all clients, and on a gateway to all requests. TLS routes have SNI hosts, so they are not
// compared.
//
// Source: Istio. A sidecar uses the routes of one VirtualService for a host. A gateway merges them,
// and uses the first of two routes with equal conditions. Routes of the older Gateway take
// precedence.
func (a *analysis) routeConflicts() {
	places := map[routePlace][]catchAllRoute{}
	for vs := range a.c.VirtualServices() {
		to := a.c.ExportedTo(vs.Object)
		if a.stopped() || len(to) == 0 {
			continue
		}
		for _, name := range vs.Spec.Gateways {
			if g := a.allGateways()[name]; g != nil || name == push.MeshGateway {
				addCatchAll(places, catchAllRoute{VirtualService: vs, exportedTo: to, gateway: g})
			}
		}
	}
	for at, routes := range places {
		if a.stopped() {
			return
		}
		a.routeConflictsAt(at, routes)
	}
}

// addCatchAll adds the catch-all routes of a VirtualService to their places.
func addCatchAll(places map[routePlace][]catchAllRoute, r catchAllRoute) {
	for _, host := range r.Spec.Hosts {
		host = strings.ToLower(host)
		for _, kind := range []string{"http", "tcp"} {
			i := r.catchAll(kind)
			if i < 0 {
				continue
			}
			r.field = fmt.Sprintf("spec.%s[%d]", kind, i)
			if r.gateway == nil {
				at := routePlace{host: host, kind: kind}
				places[at] = append(places[at], r)
				continue
			}
			for _, s := range r.gateway.servers {
				redirects := s.spec.GetTls().GetHttpsRedirect()
				if s.routeKind() == kind && !redirects && s.hosts.Cover(r.Object.Namespace, host) {
					at := routePlace{s.port, host, kind}
					places[at] = append(places[at], r)
				}
			}
		}
	}
}

// routeConflictsAt reports the routes of one place that have no effect. A Gateway with several
// ports has the same conflict on each; Run reports it once.
func (a *analysis) routeConflictsAt(at routePlace, routes []catchAllRoute) {
	slices.SortStableFunc(routes, func(x, y catchAllRoute) int {
		if x.gateway != y.gateway {
			return push.CompareAge(x.gateway.object, y.gateway.object)
		}
		return a.c.CompareRoutes(x.VirtualService, y.VirtualService)
	})
	for i, r := range routes {
		first := slices.IndexFunc(routes[:i], func(w catchAllRoute) bool { return covers(w.exportedTo, r.exportedTo) })
		same := func(w catchAllRoute) bool { return w.VirtualService == r.VirtualService } // through another server
		if first >= 0 && !slices.ContainsFunc(routes[:i], same) {
			a.reportRoute(at, r, routes[first])
		}
	}
}

// reportRoute reports r, which has no effect because first takes precedence.
func (a *analysis) reportRoute(at routePlace, r, first catchAllRoute) {
	code, field, where := ConflictingMeshHosts, "spec."+at.kind, "sidecars"
	what, has := "the "+at.kind+" routes have", "has "+at.kind+" routes for that host too"
	by := named(a.current(first.Object))
	if r.gateway != nil {
		code, field, where = ConflictingRoutes, r.field, r.gateway.object.Key.String()
		what, has = r.field+" has", "has a catch-all "+at.kind+" route too"
		if first.gateway != r.gateway {
			by += " on " + named(first.gateway.object)
		}
	}
	if r.Object.Namespace != first.Object.Namespace {
		where += " that see both"
	}
	a.report(code, r.Object, field,
		fmt.Sprintf("%s no effect for host %s on %s, because %s %s and takes precedence "+
			"(narrower exportTo, then age, then namespace and name)", what, at.host, where, by, has),
		"put the routes of both into one VirtualService, or give them different hosts, gateways or exportTo")
}

// catchAll returns the index of the first catch-all route of a kind, or -1 if there is none.
func (r catchAllRoute) catchAll(kind string) int {
	if kind == "http" {
		return slices.IndexFunc(r.Spec.Http, func(h *networking.HTTPRoute) bool {
			return len(h.Match) == 0 || slices.ContainsFunc(h.Match, r.matchesHTTP)
		})
	}
	return slices.IndexFunc(r.Spec.Tcp, func(t *networking.TCPRoute) bool {
		return len(t.Match) == 0 || slices.ContainsFunc(t.Match, func(m *networking.L4MatchAttributes) bool {
			return r.applies(m.Gateways) && proto.Equal(m, &networking.L4MatchAttributes{Gateways: m.Gateways})
		})
	})
}

// matchesHTTP reports whether a match applies to all clients and, on a gateway, to all requests.
func (r catchAllRoute) matchesHTTP(m *networking.HTTPMatchRequest) bool {
	if !r.applies(m.Gateways) {
		return false
	}
	if r.gateway == nil {
		return m.Port == 0 && len(m.SourceLabels) == 0 && m.SourceNamespace == ""
	}
	only := &networking.HTTPMatchRequest{Gateways: m.Gateways, Name: m.Name, StatPrefix: m.StatPrefix, Uri: m.Uri}
	return (m.Uri == nil || m.Uri.GetPrefix() == "/") && proto.Equal(m, only)
}

// applies reports whether a match with these gateways applies to the gateway of the route.
func (r catchAllRoute) applies(gateways []string) bool {
	name := push.MeshGateway
	if r.gateway != nil {
		name = r.gateway.object.Namespace + "/" + r.gateway.object.Name
	}
	return len(gateways) == 0 || slices.Contains(gateways, name)
}
