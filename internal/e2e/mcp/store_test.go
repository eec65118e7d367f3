package mcp_test

import (
	"fmt"
	"maps"
	"slices"
	"sync"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
	mcpv1 "istio.io/api/mcp/v1alpha1"
	networking "istio.io/api/networking/v1alpha3"
)

// store is what a peer's server holds, by collection or type.
type store struct {
	mu     sync.Mutex
	held   map[string]map[string]*mcpv1.Resource
	wake   map[chan struct{}]bool
	serial int
}

func newStore() *store {
	return &store{held: map[string]map[string]*mcpv1.Resource{}, wake: map[chan struct{}]bool{}}
}

// change edits the store and wakes the streams.
func (s *store) change(f func(held map[string]map[string]*mcpv1.Resource)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f(s.held)
	for w := range s.wake {
		select {
		case w <- struct{}{}:
		default:
		}
	}
}

// put sets one resource under a type, "ns/name".
func (s *store) put(typ, name string, body proto.Message) {
	b, err := anypb.New(body)
	if err != nil {
		panic(err)
	}
	s.change(func(held map[string]map[string]*mcpv1.Resource) {
		s.serial++
		if held[typ] == nil {
			held[typ] = map[string]*mcpv1.Resource{}
		}
		held[typ][name] = &mcpv1.Resource{Metadata: &mcpv1.Metadata{Name: name, Version: fmt.Sprint(s.serial)}, Body: b}
	})
}

func (s *store) remove(typ, name string) {
	s.change(func(held map[string]map[string]*mcpv1.Resource) { delete(held[typ], name) })
}

// clear empties everything.
func (s *store) clear() {
	s.change(func(held map[string]map[string]*mcpv1.Resource) { clear(held) })
}

// list returns what there is of a type, by name.
func (s *store) list(typ string) []*mcpv1.Resource {
	s.mu.Lock()
	defer s.mu.Unlock()
	var out []*mcpv1.Resource
	for _, name := range slices.Sorted(maps.Keys(s.held[typ])) {
		out = append(out, s.held[typ][name])
	}
	return out
}

// watch returns a channel that is written to at each change, and what ends it.
func (s *store) watch() (wake chan struct{}, stop func()) {
	wake = make(chan struct{}, 1)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.wake[wake] = true
	return wake, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.wake, wake)
	}
}

// entryOf is a ServiceEntry for a host; "" is refused.
func entryOf(host string) *networking.ServiceEntry {
	return &networking.ServiceEntry{
		Hosts:      []string{host},
		Ports:      []*networking.ServicePort{{Number: 80, Name: "http", Protocol: "HTTP"}},
		Resolution: networking.ServiceEntry_DNS,
	}
}
