package push

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	networking "istio.io/api/networking/v1alpha3"

	"github.com/ashore-mesh/ashore/config"
)

// sharedGateways checks that what VirtualServices ask of a plain HTTP server is not taken by those of another Gateway,
// whose server has the host on the same port of the same proxies: their routes become one list, those of the first
// Gateway before the others. Package gen makes routes in that way.
func (d *dangling) sharedGateways() {
	servers := map[gatewayPlace][]*gatewayClaim{}
	for _, o := range d.context.gateways.byKey.All() {
		for i, s := range o.Spec.(*networking.Gateway).Servers {
			if c := claimOf(o, i, s); c.family == plainHTTP {
				servers[placeOf(s)] = append(servers[placeOf(s)], c)
			}
		}
	}
	maps.DeleteFunc(servers, func(_ gatewayPlace, list []*gatewayClaim) bool {
		return !slices.ContainsFunc(list, func(c *gatewayClaim) bool { return c.gateway != list[0].gateway })
	})
	if len(servers) == 0 {
		return
	}
	bound := d.boundTo()
	for _, at := range slices.SortedFunc(maps.Keys(servers), func(a, b gatewayPlace) int {
		return cmp.Or(cmp.Compare(a.port, b.port), cmp.Compare(a.bind, b.bind))
	}) {
		d.sharedPort(at, servers[at], bound)
	}
}

// boundTo are the VirtualServices of each Gateway, by "namespace/name".
func (d *dangling) boundTo() map[string][]*VirtualService {
	out := map[string][]*VirtualService{}
	for _, vs := range d.context.virtual.byKey.All() {
		for _, name := range vs.Spec.Gateways {
			out[name] = append(out[name], vs)
		}
	}
	return out
}

// servedRoutes are the routes of a VirtualService at a server.
type servedRoutes struct {
	server *gatewayClaim
	routes *VirtualService
}

// sharedPort checks the servers of one place, host by host.
func (d *dangling) sharedPort(at gatewayPlace, servers []*gatewayClaim, bound map[string][]*VirtualService) {
	slices.SortFunc(servers, func(a, b *gatewayClaim) int {
		return cmp.Or(olderFirst(a.gateway, b.gateway), cmp.Compare(a.index, b.index))
	})
	hosts := map[string][]servedRoutes{}
	for _, s := range servers {
		for _, vs := range bound[s.name()] {
			for _, h := range s.serves(vs) {
				hosts[h] = append(hosts[h], servedRoutes{s, vs})
			}
		}
	}
	for _, h := range slices.Sorted(maps.Keys(hosts)) {
		d.sharedHost(at, h, hosts[h])
	}
}

// name is that of the Gateway, "namespace/name".
func (c *gatewayClaim) name() string { return c.gateway.Namespace + "/" + c.gateway.Name }

// serves lists the hosts that the server and a VirtualService have in common, in lower case, each once.
func (c *gatewayClaim) serves(vs *VirtualService) []string {
	var out []string
	for _, h := range c.server.Hosts {
		ns, host, ok := strings.Cut(strings.ToLower(h), "/")
		switch {
		case !ok:
			host = ns
		case ns != "*" && ns != vs.Object.Namespace && (ns != "." || c.gateway.Namespace != vs.Object.Namespace):
			continue
		}
		for _, n := range vs.Spec.Hosts {
			if n = strings.ToLower(n); !hostsOverlap(host, n) {
				continue
			}
			if narrower := narrowerHost(host, n); !slices.Contains(out, narrower) {
				out = append(out, narrower)
			}
		}
	}
	return out
}

// narrowerHost is that of two overlapping patterns which the other one covers.
func narrowerHost(a, b string) string {
	if a == "*" || b != "*" && strings.HasPrefix(a, "*") && (!strings.HasPrefix(b, "*") || len(b) > len(a)) {
		return b
	}
	return a
}

// gatewayRoutes is what the VirtualServices of one Gateway have taken of a host.
type gatewayRoutes struct {
	server *gatewayClaim
	bound  map[*VirtualService]bool
	taken  ledger
}

// sharedHost checks who has the requests for one host: routes is sorted by Gateway, the first one first.
func (d *dangling) sharedHost(at gatewayPlace, host string, routes []servedRoutes) {
	var all []*gatewayRoutes
	for _, r := range routes {
		if len(all) == 0 || all[len(all)-1].server.gateway != r.server.gateway {
			all = append(all, &gatewayRoutes{r.server, map[*VirtualService]bool{}, ledger{}})
		}
		own := all[len(all)-1]
		if own.bound[r.routes] {
			continue
		}
		own.bound[r.routes] = true
		m := d.httpContender(r)
		d.takenElsewhere(at, host, all[:len(all)-1], r, m)
		for _, c := range m.claims() {
			own.taken.grant(m, c)
		}
	}
}

// httpContender is the VirtualService with its claims on requests at the server.
func (d *dangling) httpContender(r servedRoutes) *contender {
	to := exportTo(r.routes.Spec.ExportTo, d.context.in.Mesh.Config.GetDefaultVirtualServiceExportTo())
	return &contender{object: r.routes.Object, to: to, claims: sync.OnceValue(func() []claim {
		return slices.DeleteFunc(routeClaims(r.routes.Object, r.server.name()), func(c claim) bool {
			return !strings.HasPrefix(c.field, "spec.http") || c.port != 0 && c.port != r.server.server.GetPort().GetNumber()
		})
	})}
}

// takenElsewhere tells of the routes of m that other Gateways before its own have taken.
func (d *dangling) takenElsewhere(at gatewayPlace, host string, others []*gatewayRoutes, r servedRoutes, m *contender) {
	if r.server.server.GetTls().GetHttpsRedirect() {
		return // no route answers there
	}
	sel := r.server.gateway.Spec.(*networking.Gateway).Selector
	for _, other := range others {
		if !selectsAll(other.server.gateway.Spec.(*networking.Gateway).Selector, sel) {
			continue
		}
		if other.bound[r.routes] {
			return // its routes are there already
		}
		var lost []string
		var by *contender
		routes := m.routes()
		for _, claims := range routes {
			if winner, left := other.taken.loses(m, claims); len(left) == 0 {
				lost, by = append(lost, claims[0].field), cmp.Or(by, winner)
			}
		}
		if by != nil {
			d.sharedRoutes(fmt.Sprintf("host %s on %s of %s", host, at, r.server.gateway.Key), other.server.gateway.Key, by.object.Key, m, lost, len(lost) == len(routes))
			return
		}
	}
}

// sharedRoutes tells that routes of m never answer, because of a VirtualService of another Gateway.
func (d *dangling) sharedRoutes(where string, gateway, by config.Key, m *contender, lost []string, all bool) {
	what, field := "has no effect", "spec.hosts"
	if !all {
		what, field = strings.Join(lost, ", ")+" has no effect", lost[0]
	}
	other := d.context.in.Objects.At(gateway)
	routes := d.context.in.Objects.At(by)
	d.warn(m.object.Key, field, "%s for %s, because %s (%s) has that host on that port of the same proxies too and comes first, by age or by name, and so do the routes of its %s (%s), which take these requests: "+
		"put the routes of both into one VirtualService, or give the Gateways different hosts, ports or selectors", what, where, other.Key, placeIn(other), routes.Key, placeIn(routes))
}
