package analyze

import (
	"fmt"
	"slices"
	"strings"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	networking "istio.io/api/networking/v1alpha3"

	"github.com/ashore-mesh/ashore/push"
)

// meshGateway is the name by which a VirtualService binds to sidecars.
const meshGateway = "mesh"

// routePlace is where VirtualServices meet: one host of sidecars, or of a listening port of gateways. Comparable.
type routePlace struct {
	port listenPort // zero: sidecars
	host string     // in lower case
}

func (p routePlace) mesh() bool { return p.port == (listenPort{}) }

// contender is a VirtualService at a place.
type contender struct {
	*push.VirtualService
	audience []string
	gateway  *gateway // nil: sidecars
	number   uint32   // the port that the server names; zero: sidecars
}

// routeConflicts finds routes that no request reaches, because a VirtualService for the same host comes first.
//
// Source: Istio. A sidecar takes the routes of one VirtualService for a host. A gateway merges them, and of routes with
// equal conditions it takes the first; routes of the older Gateway come first. Package gen makes routes in that way.
func (a *analysis) routeConflicts() {
	places := map[routePlace][]contender{}
	for vs := range a.c.VirtualServices() {
		audience := a.c.Audience(vs.Object)
		if a.stopped() || len(audience) == 0 {
			continue
		}
		for _, name := range vs.Spec.Gateways {
			if name == meshGateway {
				for _, h := range vs.Spec.Hosts {
					at := routePlace{host: strings.ToLower(h)}
					places[at] = append(places[at], contender{vs, audience, nil, 0})
				}
			} else if g := a.allGateways()[name]; g != nil {
				a.meetAtGateway(places, contender{vs, audience, g, 0})
			}
		}
	}
	reported := map[Finding]bool{} // a Gateway with several ports has the same conflict on each
	for at, members := range places {
		if a.stopped() {
			return
		}
		if len(members) > 1 {
			a.routeConflictsAt(at, members, reported)
		}
	}
}

// meetAtGateway adds a VirtualService to the places of its Gateway that serve its hosts.
func (a *analysis) meetAtGateway(places map[routePlace][]contender, c contender) {
	for _, s := range c.gateway.servers {
		c.number = s.spec.GetPort().GetNumber()
		for _, h := range c.Spec.Hosts {
			at := routePlace{s.port, strings.ToLower(h)}
			same := func(o contender) bool { return o.VirtualService == c.VirtualService && o.gateway == c.gateway }
			if !s.spec.GetTls().GetHttpsRedirect() && s.admits.covers(c.Object.Namespace, at.host) && !slices.ContainsFunc(places[at], same) {
				places[at] = append(places[at], c)
			}
		}
	}
}

// routeConflictsAt finds the routes that are lost at one place.
func (a *analysis) routeConflictsAt(at routePlace, members []contender, reported map[Finding]bool) {
	slices.SortStableFunc(members, func(x, y contender) int {
		if x.gateway != y.gateway {
			return push.CompareAge(x.gateway.object, y.gateway.object)
		}
		return a.c.CompareRoutes(x.VirtualService, y.VirtualService)
	})
	taken, seen := map[string][]contender{}, map[*push.VirtualService]bool{}
	for _, m := range members {
		if seen[m.VirtualService] {
			continue // it is bound to two Gateways of this port
		}
		seen[m.VirtualService] = true
		claims := m.claims()
		lost, by := lostRoutes(claims, taken, m.audience)
		if by != nil {
			a.reportRoutes(at, m, *by, lost, reported)
		}
		for _, c := range claims {
			taken[c.name] = append(taken[c.name], m)
		}
	}
}

// claim is something that a route asks for and that one VirtualService alone gets.
type claim struct {
	field string // of the route
	kind  string // "http", "tcp" or "tls"; the name of a claim for all of its kind is just this
	name  string
}

// lostRoutes are the fields of the routes that get nothing of what they ask for, and who has it.
func lostRoutes(claims []claim, taken map[string][]contender, audience []string) (lost []string, by *contender) {
	winner := func(c claim) *contender {
		for _, name := range []string{c.name, c.kind} {
			for i, t := range taken[name] {
				if covers(t.audience, audience) {
					return &taken[name][i]
				}
			}
		}
		return nil
	}
	for len(claims) > 0 {
		n := slices.IndexFunc(claims, func(c claim) bool { return c.field != claims[0].field })
		if n < 0 {
			n = len(claims)
		}
		var first *contender
		all := true
		for _, c := range claims[:n] {
			w := winner(c)
			all = all && w != nil
			if first == nil {
				first = w
			}
		}
		if all {
			lost = append(lost, claims[0].field)
			if by == nil {
				by = first
			}
		}
		claims = claims[n:]
	}
	return lost, by
}

// reportRoutes reports lost routes of m, once for each host.
func (a *analysis) reportRoutes(at routePlace, m, by contender, lost []string, reported map[Finding]bool) {
	code, where, why := ConflictingMeshHosts, "sidecars", "a sidecar takes the routes of one VirtualService for a host"
	first := named(a.current(by.Object))
	if !at.mesh() {
		code, where, why = ConflictingRoutes, m.gateway.object.Key.String(), "of routes with the same conditions a gateway takes the first"
		if by.gateway != m.gateway {
			first += " on " + named(by.gateway.object) + ", which has that host on that port of the same proxies too,"
		}
	}
	what, field := "has no effect", "spec.hosts"
	if n := len(m.Spec.Http) + len(m.Spec.Tcp) + len(m.Spec.Tls); len(lost) < n {
		what, field = few(lost)+" has no effect", lost[0]
	}
	if m.Object.Namespace != by.Object.Namespace {
		where += " that see both"
	}
	f := a.report(code, m.Object, field,
		fmt.Sprintf("%s for host %s on %s, because %s comes first (the narrower exportTo, then the older, then by name) and %s", what, at.host, where, first, why),
		"put the routes of both into one VirtualService, or give them different hosts, gateways or exportTo")
	if reported[*f] {
		a.findings = a.findings[:len(a.findings)-1]
		return
	}
	reported[*f] = true
}

// claims are what the routes of a VirtualService ask for at a place.
func (c contender) claims() []claim {
	var out []claim
	add := func(kind string, i int, m proto.Message) {
		if name, ok := c.conditions(m); ok {
			out = append(out, claim{fmt.Sprintf("spec.%s[%d]", kind, i), kind, kind + name})
		}
	}
	for i, r := range c.Spec.Http {
		if len(r.Match) == 0 {
			add("http", i, &networking.HTTPMatchRequest{})
		}
		for _, m := range r.Match {
			add("http", i, m)
		}
		if n := len(out); c.gateway != nil && n > 0 && out[n-1].name == "http" {
			break // it takes all requests, so no later route counts
		}
	}
	for i, r := range c.Spec.Tcp {
		if len(r.Match) == 0 {
			add("tcp", i, &networking.L4MatchAttributes{})
		}
		for _, m := range r.Match {
			add("tcp", i, m)
		}
	}
	for i, r := range c.Spec.Tls {
		for _, m := range r.Match {
			add("tls", i, m)
		}
	}
	return out
}

// match is what the three kinds of matches have in common.
type match interface {
	GetPort() uint32
	GetGateways() []string
	GetSourceLabels() map[string]string
	GetSourceNamespace() string
}

// conditions names what a match asks for at the place, the same for equal matches; empty for everything of its kind.
// A sidecar takes all HTTP routes of one VirtualService together, so their conditions on requests do not count. It
// returns false when the match cannot hold at the place.
func (c contender) conditions(of proto.Message) (name string, ok bool) {
	m, at := of.(match), meshGateway
	if c.gateway != nil {
		at = c.gateway.object.Namespace + "/" + c.gateway.object.Name
	}
	atPort := c.gateway == nil || m.GetPort() == 0 || m.GetPort() == c.number
	if gateways := m.GetGateways(); !atPort || len(gateways) > 0 && !slices.Contains(gateways, at) {
		return "", false
	}
	if c.gateway == nil {
		if _, http := of.(*networking.HTTPMatchRequest); http {
			of = &networking.HTTPMatchRequest{Port: m.GetPort(), SourceLabels: m.GetSourceLabels(), SourceNamespace: m.GetSourceNamespace()}
		}
	}
	only := proto.Clone(of).ProtoReflect()
	fields := only.Descriptor().Fields()
	for _, f := range []protoreflect.Name{"gateways", "name", "stat_prefix"} {
		if d := fields.ByName(f); d != nil {
			only.Clear(d)
		}
	}
	if c.gateway != nil {
		only.Clear(fields.ByName("port"))
	}
	if h, http := only.Interface().(*networking.HTTPMatchRequest); http && everyPath(h.Uri) {
		h.Uri, h.IgnoreUriCase = nil, false
	}
	body, err := proto.MarshalOptions{Deterministic: true}.Marshal(only.Interface())
	if err != nil {
		return fmt.Sprintf(" %p", of), true // text that is not UTF-8 equals no other
	}
	return string(body), true
}

// everyPath says that a condition on the path holds for every path.
func everyPath(uri *networking.StringMatch) bool {
	switch p := uri.GetMatchType().(type) {
	case nil:
		return true
	case *networking.StringMatch_Prefix:
		return p.Prefix == "/" || p.Prefix == ""
	case *networking.StringMatch_Regex:
		return p.Regex == ".*"
	default:
		return false
	}
}
