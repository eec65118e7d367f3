package xds

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/ashore-mesh/ashore/internal/feed"
	"github.com/ashore-mesh/ashore/push"
	"github.com/ashore-mesh/ashore/registry"
	"github.com/ashore-mesh/ashore/xds/ads"
	"github.com/ashore-mesh/ashore/xds/resource"
)

// ProxyStatus is one connected proxy.
type ProxyStatus struct {
	// ID is the node ID, "sidecar~10.0.0.1~web-1.shop~shop.svc.cluster.local".
	ID string
	// Node is the proxy as policies select it, with the labels of its WorkloadGroup.
	Node push.Node
	// Agent and Envoy are the versions of its ashore-agent and its Envoy; may be empty.
	Agent, Envoy string
	// Peer is its address.
	Peer string
	// Who is its peer.
	Who Peer
	// Bundle is the ID of the trusted authorities that it acknowledged last; may be empty.
	Bundle string
	// Group is the WorkloadGroup that its workload registered with; empty: none.
	Group string
	// Health is the last report of its workload; zero: none, or it is not registered.
	Health    registry.Report
	Connected time.Time
	// Delta means the incremental protocol, else state of the world.
	Delta bool
	// Types are what it asked for, in the order of delivery.
	Types []TypeStatus
}

// TypeStatus is one type of one proxy.
type TypeStatus struct {
	TypeURL string
	// Objects means configuration objects, which other control planes read.
	Objects bool
	// Resources is how many resources the proxy should have.
	Resources int
	ads.Status
}

// State is how current the proxy is, in Istio's words: SYNCED; STALE while it has not acknowledged
// a change; NOT_SENT before the first response; ERROR while it rejects something.
func (t TypeStatus) State() string {
	switch {
	case t.lastError() != "":
		return "ERROR"
	case t.Latest:
		return "SYNCED"
	case t.AcknowledgedAt.IsZero() && t.Pending == 0:
		return "NOT_SENT"
	}
	return "STALE"
}

// lastError is why the proxy rejects something; empty: it does not.
func (t TypeStatus) lastError() string {
	switch {
	case len(t.Rejected) > 0:
		return t.Rejected[0].Message
	case t.Rejection != nil:
		return t.Rejection.Message
	}
	return ""
}

// meshConfigType is the MeshConfig that other control planes read.
const meshConfigType = "core/v1alpha1/MeshConfig"

// client is what is connected of one proxy.
type client struct {
	streams []*stream // of its Envoy, the newest first
	control *stream   // the newest one of its agent; nil: none
}

// current are the newest stream of its Envoy and that of its agent, as far as there are any.
func (c *client) current() []*stream {
	n := min(len(c.streams), 1)
	if c.control == nil {
		return c.streams[:n]
	}
	return append(c.streams[:n:n], c.control)
}

// clients are the connected proxies.
func (s *Server) clients() map[string]*client {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := map[string]*client{}
	newestFirst := func(a, b *stream) int { return cmp.Compare(b.serial, a.serial) }
	for _, st := range slices.SortedFunc(maps.Keys(s.streams), newestFirst) {
		c := out[st.client()]
		if c == nil {
			c = &client{}
			out[st.client()] = c
		}
		if st.proxy.purpose != forControl {
			c.streams = append(c.streams, st)
		} else if c.control == nil {
			c.control = st
		}
	}
	return out
}

// Proxies are the connected proxies by node ID. The control stream of an agent is shown with the
// streams of its proxy, and alone while it has none.
func (s *Server) Proxies() []ProxyStatus {
	var out []ProxyStatus
	for _, c := range s.clients() {
		if len(c.streams) == 0 {
			out = append(out, c.control.status())
			continue
		}
		for _, st := range c.streams {
			p := st.status()
			if c.control != nil {
				agent := c.control.status()
				p.Agent, p.Bundle, p.Group, p.Health = agent.Agent, agent.Bundle, agent.Group, agent.Health
				p.Types = append(p.Types, agent.Types...)
			}
			out = append(out, p)
		}
	}
	slices.SortFunc(out, func(a, b ProxyStatus) int {
		return cmp.Or(strings.Compare(a.ID, b.ID), a.Connected.Compare(b.Connected))
	})
	return out
}

// ResourceProblems returns the problems of the resources that connected proxies should have.
func (s *Server) ResourceProblems() []feed.Problem {
	var sets []resource.Set
	for _, st := range s.all() {
		st.mu.Lock()
		for _, t := range st.order.All() {
			sets = append(sets, t.To)
		}
		st.mu.Unlock()
	}
	return resource.Problems(sets...)
}

func (st *stream) status() ProxyStatus {
	st.mu.Lock()
	defer st.mu.Unlock()
	p := ProxyStatus{ID: st.proxy.ID, Node: st.shown, Agent: st.proxy.Agent,
		Envoy: st.proxy.Envoy, Peer: st.peer, Who: st.who, Bundle: st.bundle, Connected: st.since, Delta: !st.sotw}
	for _, t := range st.order.All() {
		typeURL := t.Kind().TypeURL
		one := TypeStatus{TypeURL: typeURL, Objects: st.server.knows(typeURL), Resources: t.To.Len(),
			Status: t.Status()}
		// Istio's client takes a MeshConfig without acknowledging it.
		// Source: Istio, pkg/adsc/adsc.go, handleRecv.
		if typeURL == meshConfigType && one.Pending > 0 {
			one.Latest = true
		}
		p.Types = append(p.Types, one)
	}
	if st.registered != nil {
		p.Group = st.registered.Group
		if r := st.server.cfg.Runtime.Registrations().At(*st.registered); r != nil {
			p.Health = r.Health
		}
	}
	return p
}

// TypeDump is what a proxy is sent of one type.
type TypeDump struct {
	TypeURL   string
	Resources []*resource.Resource
}

// Dump returns what a proxy should have. id is its node ID, or the third part of it. Errors: no such
// proxy is connected, or several are.
func (s *Server) Dump(id string) ([]TypeDump, error) {
	var found *client
	for _, c := range s.clients() {
		p := c.current()[0].proxy
		if p.ID != id && p.Node.ID != id {
			continue
		}
		if found != nil && found.current()[0].proxy.ID != p.ID {
			return nil, fmt.Errorf("several proxies are called %q (%s, %s): use the whole node ID", id,
				found.current()[0].proxy.ID, p.ID)
		}
		found = c
	}
	if found == nil {
		return nil, fmt.Errorf("no proxy %q is connected", id)
	}
	var out []TypeDump
	for _, st := range found.current() {
		st.mu.Lock()
		for _, t := range st.order.All() {
			out = append(out, dump(t))
		}
		st.mu.Unlock()
	}
	return out, nil
}

// dump returns the resources that a client subscribes to.
func dump(t *ads.Subscription) TypeDump {
	out := TypeDump{TypeURL: t.Kind().TypeURL}
	for r := range t.To.All() {
		if t.Names().Covers(r.Name) {
			out.Resources = append(out.Resources, r)
		}
	}
	return out
}
