package xds

import (
	"cmp"
	"fmt"
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
	// Version is the client's, "1.40.0" or Istio's.
	Version string
	// Agent and Envoy are the versions of its ashore-agent and its Envoy; may be empty.
	Agent, Envoy string
	// Peer is its address.
	Peer string
	// Who is its peer.
	Who Peer
	// Bundle is the ID of the trusted authorities that it acknowledged last; may be empty.
	Bundle string
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

// client is what is connected of one proxy.
type client struct {
	streams []*stream // of its Envoy
	control *stream   // the newest one of its agent; nil: none
}

// clients are the connected proxies.
func (s *Server) clients() map[string]*client {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := map[string]*client{}
	for st := range s.streams {
		c := out[st.client()]
		if c == nil {
			c = &client{}
			out[st.client()] = c
		}
		if st.proxy.purpose != forControl {
			c.streams = append(c.streams, st)
		} else if c.control == nil || st.serial > c.control.serial {
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
				p.Agent, p.Bundle, p.Health = agent.Agent, agent.Bundle, agent.Health
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
	node := st.proxy.Node
	if st.shown != (push.Node{}) {
		node = st.shown
	}
	p := ProxyStatus{ID: st.proxy.ID, Node: node, Version: st.proxy.Version, Agent: st.proxy.Agent,
		Envoy: st.proxy.Envoy, Peer: st.peer, Who: st.who, Bundle: st.bundle, Connected: st.since, Delta: !st.sotw}
	for _, t := range st.order.All() {
		typeURL := t.Kind().TypeURL
		p.Types = append(p.Types, TypeStatus{TypeURL: typeURL, Objects: st.server.knows(typeURL),
			Resources: t.To.Len(), Status: t.Status()})
	}
	if st.registered != nil {
		if r := st.server.cfg.Runtime.Registrations().At(*st.registered); r != nil {
			p.Health = r.Health
		}
	}
	return p
}

// TypeDump is what a proxy is sent of one type.
type TypeDump struct {
	TypeURL   string
	Resources []ResourceDump
}

// ResourceDump is one resource.
type ResourceDump struct {
	Name, Version string
	// Any is the encoded google.protobuf.Any, which must not be changed; nil for secrets.
	Any []byte
}

// Dump returns what a proxy should have. id is its node ID, or the third part of it. Errors: no such
// proxy is connected, or several are.
func (s *Server) Dump(id string) ([]TypeDump, error) {
	streams, err := s.lookup(id)
	if err != nil {
		return nil, err
	}
	var out []TypeDump
	for _, st := range streams {
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
		if !t.Names().Covers(r.Name) {
			continue
		}
		d := ResourceDump{Name: r.Name, Version: r.Version()}
		if out.TypeURL != SecretType {
			d.Any = r.Any()
		}
		out.Resources = append(out.Resources, d)
	}
	return out
}

// lookup finds the newest stream of a proxy, and that of its agent.
func (s *Server) lookup(id string) (streams []*stream, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for st := range s.streams {
		if st.proxy.ID != id && st.proxy.Node.ID != id {
			continue
		}
		if len(streams) > 0 && streams[0].proxy.ID != st.proxy.ID {
			return nil, fmt.Errorf("several proxies are called %q (%s, %s): use the whole node ID", id,
				streams[0].proxy.ID, st.proxy.ID)
		}
		same := slices.IndexFunc(streams, func(o *stream) bool {
			return (o.proxy.purpose == forControl) == (st.proxy.purpose == forControl)
		})
		switch {
		case same < 0:
			streams = append(streams, st)
		case streams[same].serial < st.serial:
			streams[same] = st
		}
	}
	if len(streams) == 0 {
		return nil, fmt.Errorf("no proxy %q is connected", id)
	}
	return streams, nil
}
