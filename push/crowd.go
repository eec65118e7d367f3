package push

import (
	"maps"

	"github.com/ashore-mesh/ashore/config"
	"github.com/ashore-mesh/ashore/internal/feed"
	"github.com/ashore-mesh/ashore/internal/pmap"
	"github.com/ashore-mesh/ashore/registry"
)

// crowds are the members of many crowds: things that stand in one place, and so may get in one another's way.
type crowds[Place, ID comparable, M any] struct {
	members map[Place]map[ID]M
	touched map[Place]bool // where something changed since visit was called
}

func (c *crowds[Place, ID, M]) put(at Place, id ID, m M) {
	if c.members == nil {
		c.members = map[Place]map[ID]M{}
	}
	if c.members[at] == nil {
		c.members[at] = map[ID]M{}
	}
	c.members[at][id] = m
	c.touch(at)
}

func (c *crowds[Place, ID, M]) remove(at Place, id ID) {
	delete(c.members[at], id)
	if len(c.members[at]) == 0 {
		delete(c.members, at)
	}
	c.touch(at)
}

func (c *crowds[Place, ID, M]) touch(at Place) {
	if c.touched == nil {
		c.touched = map[Place]bool{}
	}
	c.touched[at] = true
}

// visit calls f with the members of every place that was touched since it was called last, in any order. One
// alone, which nobody is in the way of, is not named.
func (c *crowds[Place, ID, M]) visit(f func(at Place, members []M)) {
	for at := range c.touched {
		var members []M
		if in := c.members[at]; len(in) > 1 {
			members = make([]M, 0, len(in))
			for m := range maps.Values(in) {
				members = append(members, m)
			}
		}
		f(at, members)
	}
	clear(c.touched)
}

// crossings finds objects and services that have no effect, in whole or in part, because others have taken their
// place. It keeps what may meet side by side, so that a change costs a look at those that it may meet, however
// large the mesh is. The zero value has seen nothing.
type crossings struct {
	seen     Inputs
	routes   crowds[routePlace, config.Key, *contender]
	rules    crowds[ruleHost, config.Key, *contender]
	services crowds[servicePlace, registry.Key, *registry.Service]
	gateways gatewayCrowds
	peers    crowds[peerPlace, config.Key, *config.Object]
}

// look finds what stands in the way of what in in, wherever that may have changed since it was called last. It tells
// of every such place, also of those where nothing is found.
func (c *crossings) look(in Inputs, tell func(at place, found []finding)) {
	root := in.Mesh.Config.GetRootNamespace()
	for ch := range in.Objects.Diff(c.seen.Objects) {
		switch ch.Key.Kind {
		case config.VirtualService:
			c.changeRoutes(ch, in.Mesh)
		case config.DestinationRule:
			c.changeRules(ch, in.Mesh)
		case config.ServiceEntry:
			c.moveServices(ch, in.Services)
		case config.Gateway:
			c.gateways.change(ch)
		case config.PeerAuthentication:
			c.changePeers(ch, root, tell)
		}
	}
	for ch := range in.Services.Diff(c.seen.Services) {
		c.changeServices(ch)
	}
	c.seen = in
	c.routes.visit(func(at routePlace, members []*contender) { tell(at.place(), routeClashes(at, members)) })
	c.rules.visit(func(at ruleHost, members []*contender) { tell(at.place(), ruleClashes(at, members)) })
	c.services.visit(func(at servicePlace, members []*registry.Service) { tell(at.place(), serviceClashes(at, members, in)) })
	c.peers.visit(func(at peerPlace, members []*config.Object) { tell(at.place(), peerClashes(at, members, root)) })
	c.gateways.look(tell)
}

// objectChange is one object that came, went or was replaced.
type objectChange = pmap.Change[config.Key, *config.Object]

// contender is an object in a crowd.
type contender struct {
	object *config.Object
	// to is whom it is exported to.
	to []string
	// claims are what it asks for, made when they are first needed; not to be changed.
	claims func() []claim
}

// claim is one thing that an object asks for, and that one object alone can have: all that claim the same name
// under the same conditions are in one another's way.
type claim struct {
	name string
	// within is the name of all that name is a part of; empty: of nothing else.
	within string
	// behind says that another claim of the object may take some of it, so that it keeps nothing from others for sure.
	behind bool
	// field is the part of the object that asks, "spec.http[1]".
	field string
	// the conditions on who asks; zero: any.
	port      uint32
	labels    map[string]string
	namespace string
}

// covers says whether c holds wherever o, which is named alike, does.
func (c claim) covers(o claim) bool {
	return (c.port == 0 || c.port == o.port) && (c.namespace == "" || c.namespace == o.namespace) && selectsAll(c.labels, o.labels)
}

// heldClaim is what was claimed, by whom.
type heldClaim struct {
	by *contender
	claim
}

// ledger are the claims that were granted, by name.
type ledger map[string][]heldClaim

// winner is who has everything that c asks for, everywhere that by is seen; where they are several, the first of
// them. Nil: by gets something of it.
func (l ledger) winner(by *contender, c claim) *contender {
	var first *contender
	seen := audience(by.to, by.object.Namespace)
	if c.namespace != "" {
		seen = []string{c.namespace}
	}
	for _, ns := range seen {
		has := l.at(ns, c)
		if has == nil {
			return nil
		}
		if first == nil {
			first = has
		}
	}
	return first
}

// at is who has c in the eyes of a namespace.
func (l ledger) at(namespace string, c claim) *contender {
	c.namespace = namespace
	for _, name := range []string{c.name, c.within} {
		for _, h := range l[name] {
			if visibleTo(h.by.to, h.by.object.Namespace, namespace) && h.covers(c) {
				return h.by
			}
		}
	}
	return nil
}

func (l ledger) grant(by *contender, c claim) {
	if !c.behind {
		l[c.name] = append(l[c.name], heldClaim{by, c})
	}
}

// complaint is a finding about a part of o.
func complaint(o *config.Object, severity feed.Severity, field, text, what string) finding {
	return finding{
		problem: feed.Problem{
			Severity: severity, Source: o.Origin.Source, Object: o.Key.String(), Field: field,
			File: o.Origin.File, Line: o.Origin.Line, Text: text,
		},
		what: what,
	}
}
