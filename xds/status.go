package xds

import (
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

// Count returns how many connected proxies match. match is called with s locked, also for peers
// without a certificate.
func (s *Server) Count(match func(Peer) bool) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	found := map[string]struct{}{}
	for st := range s.streams {
		if match(st.who) {
			found[st.proxy.ID] = struct{}{}
		}
	}
	return len(found)
}

// Proxies are the connected proxies by node ID. The control stream of an agent is shown with the
// streams of its proxy, and alone while it has none.
func (s *Server) Proxies() []ProxyStatus {
	s.mu.Lock()
	var streams []*stream
	control := map[*stream]*stream{} // by the stream that it is shown with
	for _, all := range s.clients {
		own := controlOf(all)
		n := len(streams)
		for _, st := range all {
			if st.proxy.purpose != forControl {
				streams = append(streams, st)
				control[st] = own
			}
		}
		if n == len(streams) {
			streams = append(streams, own)
		}
	}
	s.mu.Unlock()
	out := make([]ProxyStatus, len(streams))
	for i, st := range streams {
		out[i] = st.status()
		if own := control[st]; own != nil {
			agent := own.status()
			out[i].Agent, out[i].Bundle, out[i].Health = agent.Agent, agent.Bundle, agent.Health
			out[i].Types = append(out[i].Types, agent.Types...)
		}
	}
	slices.SortFunc(out, func(a, b ProxyStatus) int {
		if c := strings.Compare(a.ID, b.ID); c != 0 {
			return c
		}
		return a.Connected.Compare(b.Connected)
	})
	return out
}

// ResourceProblems returns the problems of the resources that connected proxies should have.
func (s *Server) ResourceProblems() []feed.Problem {
	s.mu.Lock()
	streams := slices.Collect(maps.Keys(s.streams))
	s.mu.Unlock()
	var sets []resource.Set
	for _, st := range streams {
		st.mu.Lock()
		for _, t := range st.types {
			sets = append(sets, t.To)
		}
		st.mu.Unlock()
	}
	return resource.Problems(sets...)
}

// controlOf returns the newest control stream among those of a client, nil when it has none.
func controlOf(streams []*stream) (own *stream) {
	for _, st := range streams {
		if st.proxy.purpose == forControl && (own == nil || st.serial > own.serial) {
			own = st
		}
	}
	return own
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
	for _, t := range st.types {
		p.Types = append(p.Types, TypeStatus{TypeURL: t.Kind().TypeURL, Objects: t.objects, Resources: t.To.Len(),
			Status: t.Status()})
	}
	if st.member != nil {
		if r := st.server.cfg.Runtime.Registrations().At(st.member.key); r != nil {
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
	type wanted struct {
		typeURL string
		to      resource.Set
		names   *ads.Names
	}
	var types []wanted
	for _, st := range streams {
		st.mu.Lock()
		for _, t := range st.types {
			types = append(types, wanted{t.Kind().TypeURL, t.To, t.Names()})
		}
		st.mu.Unlock()
	}

	out := make([]TypeDump, len(types))
	for i, t := range types {
		out[i].TypeURL = t.typeURL
		for r := range t.to.All() {
			if !t.names.Covers(r.Name) {
				continue
			}
			d := ResourceDump{Name: r.Name, Version: r.Version()}
			if t.typeURL != SecretType {
				d.Any = r.Any()
			}
			out[i].Resources = append(out[i].Resources, d)
		}
	}
	return out, nil
}

// lookup finds the newest stream of a proxy, and the control stream of its agent.
func (s *Server) lookup(id string) ([]*stream, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var found, own *stream
	for st := range s.streams {
		if st.proxy.ID != id && st.proxy.Node.ID != id {
			continue
		}
		for _, other := range []*stream{found, own} {
			if other != nil && other.proxy.ID != st.proxy.ID {
				return nil, fmt.Errorf("several proxies are called %q (%s, %s): use the whole node ID", id,
					other.proxy.ID, st.proxy.ID)
			}
		}
		newest := &found
		if st.proxy.purpose == forControl {
			newest = &own
		}
		if *newest == nil || st.serial > (*newest).serial {
			*newest = st
		}
	}
	streams := slices.DeleteFunc([]*stream{found, own}, func(st *stream) bool { return st == nil })
	if len(streams) == 0 {
		return nil, fmt.Errorf("no proxy %q is connected", id)
	}
	return streams, nil
}
