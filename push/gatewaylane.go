package push

import (
	networking "istio.io/api/networking/v1alpha3"

	"github.com/ashore-mesh/ashore/config"
)

// gatewayLane are the servers of one place whose Gateways select the same proxies. Servers get in one another's way
// where a proxy may be selected by both.
type gatewayLane struct {
	gatewayPlace
	selector string
}

func (l gatewayLane) place() place {
	return place{config.Key{Kind: config.Gateway}, l.String() + " " + l.selector}
}

// serverID tells servers of all Gateways apart.
type serverID struct {
	gateway config.Key
	index   int
}

// gatewayCrowds are the servers of all Gateways.
type gatewayCrowds struct {
	crowds[gatewayLane, serverID, *gatewayClaim]
	// lanes are those of each place, with those that became empty since look was called.
	lanes map[gatewayPlace]map[gatewayLane]selector
}

// change brings the servers of a changed Gateway among those of their places.
func (c *gatewayCrowds) change(ch objectChange) {
	if ch.Old != nil {
		sel := selectorOf(ch.Old).String()
		for i, s := range ch.Old.Spec.(*networking.Gateway).Servers {
			c.remove(gatewayLane{placeOf(s), sel}, serverID{ch.Key, i})
		}
	}
	if ch.New != nil {
		for i, s := range ch.New.Spec.(*networking.Gateway).Servers {
			c.add(claimOf(ch.New, i, s))
		}
	}
}

func (c *gatewayCrowds) add(claim *gatewayClaim) {
	at := placeOf(claim.server)
	lane := gatewayLane{at, claim.selector.String()}
	if c.lanes == nil {
		c.lanes = map[gatewayPlace]map[gatewayLane]selector{}
	}
	if c.lanes[at] == nil {
		c.lanes[at] = map[gatewayLane]selector{}
	}
	c.lanes[at][lane] = claim.selector
	c.put(lane, serverID{claim.gateway.Key, claim.index}, claim)
}

// look finds what is in the way of what, in every lane where that may have changed since it was called.
func (c *gatewayCrowds) look(tell func(at place, found []finding)) {
	changed := map[gatewayPlace]*selectorIndex[bool]{}
	for lane := range c.touched {
		at := lane.gatewayPlace
		changed[at] = changed[at].with(c.lanes[at][lane], true)
	}
	for at, selectors := range changed {
		c.lookAt(at, selectors, tell)
	}
	clear(c.touched)
}

// lookAt looks again at the lanes of a place that meet changed ones. What their servers have depends on the lanes
// that meet theirs, and on no others: a server takes nothing for sure because of wider lanes alone, and what meets a
// lane meets the wider ones too.
func (c *gatewayCrowds) lookAt(at gatewayPlace, changed *selectorIndex[bool], tell func(at place, found []finding)) {
	found := map[gatewayLane][]finding{}
	var affected *selectorIndex[bool]
	for lane, sel := range c.lanes[at] {
		if changed.meeting(sel) {
			found[lane] = nil
			affected = affected.with(sel, true)
		}
	}
	var members []*gatewayClaim
	for lane, sel := range c.lanes[at] {
		if affected.meeting(sel) {
			for _, m := range c.members[lane] {
				members = append(members, m)
			}
		}
	}
	gatewayClashes(members, func(m *gatewayClaim, f finding) {
		lane := gatewayLane{at, m.selector.String()}
		if _, look := found[lane]; look {
			found[lane] = append(found[lane], f)
		}
	})
	for lane, list := range found {
		tell(lane.place(), list)
		if len(c.members[lane]) == 0 {
			delete(c.lanes[at], lane)
		}
	}
	if len(c.lanes[at]) == 0 {
		delete(c.lanes, at)
	}
}
