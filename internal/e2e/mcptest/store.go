package mcptest

import (
	"fmt"
	"maps"
	"slices"
	"sync"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
	mcpv1 "istio.io/api/mcp/v1alpha1"

	"github.com/ashore-mesh/ashore/internal/task"
)

// Store holds the resources of a server, by type or collection. Safe for concurrent use.
type Store struct {
	changed task.Broadcaster

	mu     sync.Mutex
	held   map[string]map[string]*mcpv1.Resource // guarded by mu
	serial int                                   // guarded by mu
}

// NewStore returns an empty store.
func NewStore() *Store { return &Store{held: map[string]map[string]*mcpv1.Resource{}} }

// change edits the store and wakes the streams.
func (s *Store) change(f func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f()
	s.changed.Notify()
}

// Put sets one resource of a type, "namespace/name".
func (s *Store) Put(typ, name string, body proto.Message) {
	b, err := anypb.New(body)
	if err != nil {
		panic(err)
	}
	s.change(func() {
		s.serial++
		if s.held[typ] == nil {
			s.held[typ] = map[string]*mcpv1.Resource{}
		}
		s.held[typ][name] = &mcpv1.Resource{Metadata: &mcpv1.Metadata{Name: name, Version: fmt.Sprint(s.serial)},
			Body: b}
	})
}

// Remove removes a resource.
func (s *Store) Remove(typ, name string) { s.change(func() { delete(s.held[typ], name) }) }

// Clear removes all resources.
func (s *Store) Clear() { s.change(func() { clear(s.held) }) }

// list returns the resources of a type, by name.
func (s *Store) list(typ string) []*mcpv1.Resource {
	s.mu.Lock()
	defer s.mu.Unlock()
	var out []*mcpv1.Resource
	for _, name := range slices.Sorted(maps.Keys(s.held[typ])) {
		out = append(out, s.held[typ][name])
	}
	return out
}
