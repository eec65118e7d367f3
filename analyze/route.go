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

// contender is a VirtualService at a place.
type contender struct {
	*push.VirtualService
	audience []string
	gateway  *gateway // nil: sidecars
	server   server   // of gateway
}

// routeConflicts finds routes that no request reaches, because a VirtualService for the same host comes first.
//
// Source: Istio. A sidecar takes the routes of one VirtualService for a host. A gateway merges them: routes without
// conditions come last, and of routes with equal conditions it takes the first. Routes of the older Gateway come first.
// Package gen makes routes in that way.
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
					places[at] = append(places[at], contender{VirtualService: vs, audience: audience})
				}
			} else if g := a.allGateways()[name]; g != nil {
				a.meetAtGateway(places, contender{VirtualService: vs, audience: audience, gateway: g})
			}
		}
	}
	for at, members := range places {
		if a.stopped() {
			return
		}
		if len(members) > 1 {
			a.routeConflictsAt(at, members)
		}
	}
}

// meetAtGateway adds a VirtualService to the places of its Gateway that serve its hosts.
func (a *analysis) meetAtGateway(places map[routePlace][]contender, c contender) {
	for _, s := range c.gateway.servers {
		c.server = s
		for _, h := range c.Spec.Hosts {
			at := routePlace{s.port, strings.ToLower(h)}
			if s.spec.GetTls().GetHttpsRedirect() || !s.admits.covers(c.Object.Namespace, at.host) {
				continue
			}
			places[at] = append(places[at], c)
		}
	}
}

// routeConflictsAt finds the routes that are lost at one place. A Gateway with several ports has the same conflict on
// each; Run reports it once.
func (a *analysis) routeConflictsAt(at routePlace, members []contender) {
	slices.SortStableFunc(members, func(x, y contender) int {
		if x.gateway != y.gateway {
			return push.CompareAge(x.gateway.object, y.gateway.object)
		}
		return a.c.CompareRoutes(x.VirtualService, y.VirtualService)
	})
	taken, seen := map[string][]contender{}, map[*push.VirtualService]bool{}
	for _, m := range members {
		if seen[m.VirtualService] {
			continue // it is at this place through another Gateway or server too
		}
		seen[m.VirtualService] = true
		claims := m.claims()
		kept, by := map[string]bool{}, map[string]*contender{} // by field: the route gets something; who has the rest
		for _, c := range claims {
			if w := winner(c, taken, m.audience); w != nil {
				by[c.field] = w
			} else {
				kept[c.field] = true
			}
		}
		var lost []string
		for _, c := range claims {
			if !kept[c.field] && !slices.Contains(lost, c.field) {
				lost = append(lost, c.field)
			}
			if !c.hidden {
				taken[c.name] = append(taken[c.name], m)
			}
		}
		if len(lost) > 0 {
			a.reportRoutes(at, m, *by[lost[0]], lost)
		}
	}
}

// claim is something that a route asks for and that one VirtualService alone gets.
type claim struct {
	field string // of the route
	kind  string // "http", "tcp" or "tls"; the name of a claim for all of its kind is just this
	name  string
	// hidden means that an earlier route of the VirtualService takes it from some clients, so that others may get it.
	hidden bool
}

// winner is who has a claim wherever the audience sees it; nil: nobody has.
func winner(c claim, taken map[string][]contender, audience []string) *contender {
	for _, name := range []string{c.name, c.kind} {
		for _, holder := range taken[name] {
			mergesHTTP := holder.gateway != nil && c.kind == "http" // routes without conditions come last
			if covers(holder.audience, audience) && (name == c.name || !mergesHTTP) {
				return &holder
			}
		}
	}
	return nil
}

// reportRoutes reports lost routes of m.
func (a *analysis) reportRoutes(at routePlace, m, by contender, lost []string) {
	code, where, why := ConflictingMeshHosts, "sidecars", "a sidecar takes the routes of one VirtualService for a host"
	first := named(a.current(by.Object))
	if at.port != (listenPort{}) {
		code, where, why = ConflictingRoutes, m.gateway.object.Key.String(),
			"of routes with the same conditions a gateway takes the first"
		if by.gateway != m.gateway {
			first += " on " + named(by.gateway.object) + ", which has that host on that port of the same proxies too,"
		}
	}
	what, field := "has no effect", "spec.hosts"
	if len(lost) < len(m.Spec.Http)+len(m.Spec.Tcp)+len(m.Spec.Tls) {
		what, field = few(lost)+" has no effect", lost[0]
	}
	if m.Object.Namespace != by.Object.Namespace {
		where += " that see both"
	}
	a.report(code, m.Object, field,
		fmt.Sprintf("%s for host %s on %s, because %s comes first (the narrower exportTo, then the older, "+
			"then by name) and %s", what, at.host, where, first, why),
		"put the routes of both into one VirtualService, or give them different hosts, gateways or exportTo")
}

// claims are what the routes of a VirtualService ask for at a place.
func (c contender) claims() []claim {
	var out []claim
	hidden, done := false, false
	add := func(kind string, i int, m proto.Message) {
		if c.gateway != nil && c.server.takes() != kind || done {
			return
		}
		name, everything, ok := c.conditions(m)
		if !ok {
			return
		}
		out = append(out, claim{fmt.Sprintf("spec.%s[%d]", kind, i), kind, kind + name, hidden})
		if c.gateway != nil && kind == "http" {
			hidden, done = hidden || everything, name == "" // no later route is reached
		}
	}
	for i, r := range c.Spec.Http {
		if len(r.Match) == 0 {
			add("http", i, &networking.HTTPMatchRequest{})
		}
		for _, m := range r.Match {
			add("http", i, m)
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
// A sidecar takes all HTTP routes of one VirtualService together, so their conditions on requests do not count.
// everything means that it has no conditions but those on the client. ok is false when it cannot hold at the place.
func (c contender) conditions(of proto.Message) (name string, everything, ok bool) {
	m, at := of.(match), meshGateway
	if c.gateway != nil {
		at = c.gateway.object.Namespace + "/" + c.gateway.object.Name
	}
	atPort := c.gateway == nil || m.GetPort() == 0 || m.GetPort() == c.server.spec.GetPort().GetNumber()
	if gateways := m.GetGateways(); !atPort || len(gateways) > 0 && !slices.Contains(gateways, at) {
		return "", false, false
	}
	if c.gateway == nil {
		if _, http := of.(*networking.HTTPMatchRequest); http {
			labels, namespace := m.GetSourceLabels(), m.GetSourceNamespace()
			of = &networking.HTTPMatchRequest{Port: m.GetPort(), SourceLabels: labels, SourceNamespace: namespace}
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
	for _, f := range []protoreflect.Name{"source_labels", "source_namespace"} {
		if d := fields.ByName(f); d != nil {
			only.Clear(d)
		}
	}
	if err != nil {
		return fmt.Sprintf(" %p", of), false, true // text that is not UTF-8 equals no other
	}
	return string(body), proto.Size(only.Interface()) == 0, true
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
