package analyze

import (
	"fmt"
	"slices"

	"google.golang.org/protobuf/proto"
	networking "istio.io/api/networking/v1alpha3"

	"github.com/ashore-mesh/ashore/push"
)

// routePlace is where routes of VirtualServices meet: one host of a Gateway, or of sidecars.
// Comparable.
type routePlace struct {
	gateway string // "namespace/name", or push.MeshGateway
	host    string
	kind    string // "http" or "tcp"
}

// catchAllRoute is a route of a VirtualService that leaves nothing to other routes of its place.
type catchAllRoute struct {
	*push.VirtualService
	field string // "spec.http[1]"
}

// routeConflicts reports VirtualServices without effect because another one for the same host,
// gateway and kind of routes takes precedence. It compares only catch-all routes: those that apply
// to all clients, and on a gateway to all requests. TLS routes have SNI hosts, so they are not
// compared.
//
// Source: Istio. A sidecar uses the routes of one VirtualService for a host. A gateway merges them,
// and uses the first of two routes with equal conditions.
func (a *analysis) routeConflicts() {
	places := map[routePlace][]catchAllRoute{}
	for vs := range a.c.VirtualServices() {
		if a.stopped() || len(a.c.ExportedTo(vs.Object)) == 0 {
			continue
		}
		for _, gateway := range vs.Spec.Gateways {
			for _, kind := range []string{"http", "tcp"} {
				i := catchAll(vs.Spec, gateway, kind)
				if i < 0 || gateway != push.MeshGateway && a.allGateways()[gateway] == nil {
					continue
				}
				field := fmt.Sprintf("spec.%s[%d]", kind, i)
				if len(vs.Delegates) > 0 {
					field = "spec." + kind // i counts the routes of delegates too
				}
				for _, host := range vs.Spec.Hosts {
					at := routePlace{gateway, host, kind}
					places[at] = append(places[at], catchAllRoute{vs, field})
				}
			}
		}
	}
	for at, routes := range places {
		if a.stopped() {
			return
		}
		slices.SortStableFunc(routes, func(x, y catchAllRoute) int {
			return push.CompareRoutes(x.VirtualService, y.VirtualService)
		})
		for i, r := range routes {
			hides := func(w catchAllRoute) bool { return covers(a.c.ExportedTo(w.Object), a.c.ExportedTo(r.Object)) }
			if first := slices.IndexFunc(routes[:i], hides); first >= 0 {
				a.reportRoute(at, r, routes[first])
			}
		}
	}
}

// reportRoute reports r, which has no effect because first takes precedence.
func (a *analysis) reportRoute(at routePlace, r, first catchAllRoute) {
	code, field, where := ConflictingMeshHosts, "spec."+at.kind, "sidecars"
	if at.gateway != push.MeshGateway {
		code, field, where = ConflictingRoutes, r.field, "Gateway "+at.gateway
	}
	a.report(code, r.Object, field,
		fmt.Sprintf("no effect for host %s on %s, because %s has %s routes for that host too and takes "+
			"precedence (narrower exportTo, then age, then namespace and name)", at.host, where, named(a.current(first.Object)), at.kind),
		"put the routes of both into one VirtualService, or give them different hosts, gateways or exportTo")
}

// catchAll returns the index of the first catch-all route of a kind on a gateway, or -1 if there is
// none.
func catchAll(vs *networking.VirtualService, gateway, kind string) int {
	applies := func(gateways []string) bool { return len(gateways) == 0 || slices.Contains(gateways, gateway) }
	if kind == "http" {
		matches := func(m *networking.HTTPMatchRequest) bool {
			if gateway == push.MeshGateway {
				return applies(m.Gateways) && m.Port == 0 && len(m.SourceLabels) == 0 && m.SourceNamespace == ""
			}
			only := &networking.HTTPMatchRequest{Gateways: m.Gateways, Name: m.Name, StatPrefix: m.StatPrefix, Uri: m.Uri}
			return applies(m.Gateways) && (m.Uri == nil || m.Uri.GetPrefix() == "/") && proto.Equal(m, only)
		}
		return slices.IndexFunc(vs.Http, func(h *networking.HTTPRoute) bool {
			return len(h.Match) == 0 || slices.ContainsFunc(h.Match, matches)
		})
	}
	matches := func(m *networking.L4MatchAttributes) bool {
		return applies(m.Gateways) && proto.Equal(m, &networking.L4MatchAttributes{Gateways: m.Gateways})
	}
	return slices.IndexFunc(vs.Tcp, func(t *networking.TCPRoute) bool {
		return len(t.Match) == 0 || slices.ContainsFunc(t.Match, matches)
	})
}
