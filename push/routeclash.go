package push

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"sync"

	networking "istio.io/api/networking/v1alpha3"

	"github.com/ashore-mesh/ashore/config"
	"github.com/ashore-mesh/ashore/internal/feed"
)

// routePlace is where VirtualServices meet: a host, in lower case, of what a gateway, or "mesh", routes.
type routePlace struct{ gateway, host string }

func (p routePlace) place() place {
	return place{config.Key{Kind: config.VirtualService}, p.gateway + " " + p.host}
}

// String is the place for people.
func (p routePlace) String() string {
	if p.gateway == meshGateway {
		return "host " + p.host + " on sidecars"
	}
	return "host " + p.host + " on gateway " + p.gateway
}

// changeRoutes brings a changed VirtualService among those of its hosts and gateways.
func (c *crossings) changeRoutes(ch objectChange, m *Mesh) {
	if ch.Old != nil {
		for _, at := range routePlaces(ch.Old, m.Domain) {
			c.routes.remove(at, ch.Key)
		}
	}
	if ch.New == nil {
		return
	}
	spec := ch.New.Spec.(*networking.VirtualService)
	to := exportTo(spec.ExportTo, m.Config.GetDefaultVirtualServiceExportTo())
	for _, at := range routePlaces(ch.New, m.Domain) {
		c.routes.put(at, ch.Key, &contender{object: ch.New, to: to, claims: sync.OnceValue(func() []claim { return routeClaims(ch.New, at.gateway) })})
	}
}

// routePlaces are all gateways with all hosts of a VirtualService.
func routePlaces(o *config.Object, domain string) []routePlace {
	var out []routePlace
	for _, gateway := range gatewaysOf(o) {
		for _, host := range hostsOf(o, domain) {
			out = append(out, routePlace{gateway, host})
		}
	}
	return out
}

// hostsOf are the full names of the hosts of a VirtualService, in lower case and in its order.
func hostsOf(o *config.Object, domain string) []string {
	hosts := o.Spec.(*networking.VirtualService).Hosts
	out := make([]string, len(hosts))
	for i, h := range hosts {
		out[i] = strings.ToLower(config.ResolveHost(h, o.Namespace, domain))
	}
	return out
}

// routeClashes finds routes of VirtualServices for one host and gateway that nothing reaches, because others which
// come first take everything that they ask for.
//
// Source: Istio. A sidecar takes the HTTP routes of one VirtualService for a host; a gateway merges them, and of
// routes with equal conditions takes the first. Package gen makes routes in that way.
func routeClashes(at routePlace, members []*contender) []finding {
	slices.SortFunc(members, func(a, b *contender) int {
		return cmp.Or(cmp.Compare(exportRank(a.to, a.object.Namespace), exportRank(b.to, b.object.Namespace)), olderFirst(a.object, b.object))
	})
	taken := ledger{}
	var out []finding
	for _, m := range members {
		routes := m.routes()
		var lost []lostRoute
		var granted []claim
		for _, r := range routes {
			by, left := taken.loses(m, r)
			if len(left) == 0 {
				lost = append(lost, lostRoute{r[0].field, by})
			}
			granted = append(granted, left...)
		}
		out = append(out, lostFindings(at, m, lost, len(lost) == len(routes))...)
		for _, c := range granted {
			taken.grant(m, c)
		}
	}
	return out
}

// routes are the claims of each route, which stand side by side, without those for clients that do not see m: they
// never hold.
func (m *contender) routes() [][]claim {
	var out [][]claim
	field := ""
	for _, c := range m.claims() {
		if c.namespace != "" && !visibleTo(m.to, m.object.Namespace, c.namespace) {
			continue
		}
		if len(out) == 0 || field != c.field {
			out, field = append(out, nil), c.field
		}
		out[len(out)-1] = append(out[len(out)-1], c)
	}
	return out
}

// loses says what of the claims is left to m, and who took the first that is not.
func (l ledger) loses(m *contender, claims []claim) (by *contender, left []claim) {
	for _, c := range claims {
		winner := l.winner(m, c)
		if winner == nil {
			left = append(left, c)
		} else if by == nil {
			by = winner
		}
	}
	return by, left
}

// lostRoute is a route that nothing reaches, because of another object.
type lostRoute struct {
	field string
	by    *contender
}

// lostFindings are the findings about the routes that m lost, one for each object that took some. all says that it
// has no others at the place.
func lostFindings(at routePlace, m *contender, lost []lostRoute, all bool) []finding {
	var out []finding
	for len(lost) > 0 {
		by := lost[0].by
		var fields []string
		var rest []lostRoute
		for _, r := range lost {
			if r.by == by {
				fields = append(fields, r.field)
			} else {
				rest = append(rest, r)
			}
		}
		out = append(out, lostFinding(at, m, by, fields, all && len(out) == 0 && len(rest) == 0))
		lost = rest
	}
	return out
}

// lostFinding tells that by has taken the routes in fields from m; with all, these are all that it has.
func lostFinding(at routePlace, m, by *contender, fields []string, all bool) finding {
	severity, where := feed.Error, ""
	if !sameSight(m.object, by.object) {
		severity, where = feed.Warning, ", wherever both are seen"
	}
	what, field := "has no effect", "spec.hosts"
	if !all {
		what, field = strings.Join(fields, ", ")+" has no effect", fields[0]
	}
	why := "a sidecar takes the routes of one object for a host"
	if at.gateway != meshGateway {
		why = "of routes with the same conditions a gateway takes the first"
	}
	text := fmt.Sprintf("%s for %s%s, because %s (%s) comes first (the narrower exportTo, then the older, then by name) and %s: put the routes of both into one object, or give them different hosts, gateways or exportTo",
		what, at, where, by.object.Key, placeIn(by.object), why)
	return complaint(m.object, severity, field, text, strings.Join(append(fields, at.gateway, at.host, by.object.Key.String()), " "))
}

// sameSight says that whatever sees a also sees b: a Sidecar that imports the one, by namespace and hosts, imports the
// other too, and so does the server of a Gateway.
func sameSight(a, b *config.Object) bool {
	theirs := b.Spec.(*networking.VirtualService).Hosts
	return a.Namespace == b.Namespace && !slices.ContainsFunc(a.Spec.(*networking.VirtualService).Hosts, func(h string) bool { return !slices.Contains(theirs, h) })
}
