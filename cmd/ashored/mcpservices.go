package main

import (
	"sync"

	"github.com/hashicorp/go-hclog"
	networking "istio.io/api/networking/v1alpha3"

	"github.com/ashore-mesh/ashore/config"
	"github.com/ashore-mesh/ashore/internal/feed"
	"github.com/ashore-mesh/ashore/push"
	"github.com/ashore-mesh/ashore/registry"
	"github.com/ashore-mesh/ashore/registry/entry"
)

// synthesis adds what registries know to the objects that other control planes are told: a ServiceEntry for each service. One
// call of objects at a time; look may be called meanwhile.
type synthesis struct {
	// supplied tells of whom a service is made, and derived is the name of what makes services of configuration.
	supplied func(registry.Key) (push.Supplied, bool)
	derived  string
	// merging are the rules for a service that several registries have.
	merging registry.Merging
	// tells says whether an object is told anyway.
	tells func(*config.Object) bool
	log   hclog.Logger

	mu    sync.Mutex
	asked bool                  // guarded by mu: objects was called
	again map[registry.Key]bool // guarded by mu: what to look at when it is called next

	// the following belong to objects
	seen    push.Inputs
	all     push.Objects
	refused map[registry.Key]string // what was logged of services that are not told
}

// look has the next call of objects look at these services, whether or not anything else of them has changed. False: nobody
// has asked yet, and the first call looks at all.
func (s *synthesis) look(keys []registry.Key) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.asked {
		return false
	}
	for _, k := range keys {
		s.again[k] = true
	}
	return true
}

// begin notes that somebody asks, and returns what is to be looked at anyway.
func (s *synthesis) begin() map[registry.Key]bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	touched := s.again
	if !s.asked {
		touched = map[registry.Key]bool{}
	}
	s.asked, s.again = true, map[registry.Key]bool{}
	return touched
}

// objects are those of in, and what is made of its services. What it costs is what has changed since it was called last.
func (s *synthesis) objects(in push.Inputs) push.Objects {
	touched := s.begin()
	for ch := range in.Objects.Diff(s.seen.Objects) {
		if ch.HasNew {
			s.all = s.all.With(ch.Key, ch.New)
		} else {
			s.all = s.all.Without(ch.Key)
		}
		if k, ok := entry.SyntheticOf(ch.Key); ok {
			touched[k] = true // it stood in the way of ours, or does
		}
		for _, host := range hostsOf(ch.Old, ch.New) {
			touched[registry.Key{Host: host, Namespace: ch.Key.Namespace}] = true // it is told elsewhere now, or not any more
		}
	}
	for ch := range in.Services.Diff(s.seen.Services) {
		touched[ch.Key] = true
	}
	for ch := range in.Endpoints.Diff(s.seen.Endpoints) {
		touched[ch.Key] = true
	}
	s.seen = in
	for k := range touched {
		s.replace(k)
	}
	return s.all
}

// hostsOf are those that ServiceEntries declare; objects may be nil, or of another kind.
func hostsOf(objects ...*config.Object) []string {
	var out []string
	for _, o := range objects {
		if o == nil {
			continue
		}
		if se, ok := o.Spec.(*networking.ServiceEntry); ok {
			out = append(out, se.Hosts...)
		}
	}
	return out
}

// replace brings the ServiceEntry of one service up to date. One that an operator wrote under its name stays.
func (s *synthesis) replace(k registry.Key) {
	key := entry.SyntheticKey(k)
	if s.seen.Objects.At(key) != nil {
		return
	}
	o := s.made(k)
	old := s.all.At(key)
	switch {
	case o == nil:
		s.all = s.all.Without(key)
	case old == nil || old.Hash != o.Hash:
		s.all = s.all.With(key, o)
	}
}

// made is the ServiceEntry of one service; nil: registries do not have it, or who declares it is told himself.
func (s *synthesis) made(k registry.Key) *config.Object {
	supplied, ok := s.supplied(k)
	if !ok {
		return nil
	}
	var parts []registry.Instances
	for _, p := range supplied.Parts {
		if p.Source != s.derived {
			parts = append(parts, p.Instances)
		} else if o := objectNamed(s.seen.Objects, p.Service.Object); o == nil || s.tells(o) {
			return nil
		}
	}
	if len(parts) == 0 {
		return nil
	}
	merged, _ := s.merging.Merge(parts)
	o := entry.Synthetic(merged)
	if problems, ok := config.Accept(o); !ok {
		s.refuse(k, firstError(problems))
		return nil
	}
	delete(s.refused, k)
	return o
}

// refuse logs once why a service is not told.
func (s *synthesis) refuse(k registry.Key, why string) {
	if s.refused[k] == why {
		return
	}
	if s.refused == nil {
		s.refused = map[registry.Key]string{}
	}
	s.refused[k] = why
	s.log.Warn("a service of a registry is not told to other control planes: it makes no valid ServiceEntry", "host", k.Host, "problem", why)
}

// firstError is the first of problems that is one.
func firstError(problems []feed.Problem) string {
	for _, p := range problems {
		if p.IsError() {
			return p.String()
		}
	}
	return ""
}
