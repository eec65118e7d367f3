package server

import (
	"github.com/hashicorp/go-hclog"
	networking "istio.io/api/networking/v1alpha3"

	"github.com/ashore-mesh/ashore/config"
	"github.com/ashore-mesh/ashore/internal/feed"
	"github.com/ashore-mesh/ashore/push"
	"github.com/ashore-mesh/ashore/registry"
	"github.com/ashore-mesh/ashore/registry/entry"
)

// synthesis adds the services of registries to the objects that other control planes get, as
// ServiceEntries, except for hosts that one of the objects declares. One call of objects at a time.
type synthesis struct {
	log hclog.Logger

	seen     push.Exported
	all      push.Objects
	declared map[string]int          // how many of the objects declare a host
	at       map[string]registry.Key // the services that registries have, by host
	refused  map[registry.Key]string // what was logged of services that are not told
}

// objects returns what is exported with a ServiceEntry for each service. Its cost depends on what
// changed since the last call.
func (s *synthesis) objects(now push.Exported) push.Objects {
	touched := s.declare(now.Objects)
	for ch := range now.Services.Diff(s.seen.Services) {
		touched[ch.Key] = true
		s.locate(ch.Key, ch.HasNew)
	}
	for ch := range now.Endpoints.Diff(s.seen.Endpoints) {
		touched[ch.Key] = true
	}
	s.seen = now
	for k := range touched {
		s.replace(k)
	}
	return s.all
}

// declare takes in the objects that are told, and returns the services to which one of them matters
// that has changed.
func (s *synthesis) declare(objects push.Objects) map[registry.Key]bool {
	touched := map[registry.Key]bool{}
	for ch := range objects.Diff(s.seen.Objects) {
		if ch.HasNew {
			s.all = s.all.With(ch.Key, ch.New)
		} else {
			s.all = s.all.Without(ch.Key)
		}
		if k, ok := entry.SyntheticOf(ch.Key); ok {
			touched[k] = true // it stood in the way of ours, or does
		}
		s.count(ch.Old, -1, touched)
		s.count(ch.New, 1, touched)
	}
	return touched
}

// count counts an object, which may be nil or of another kind, among those that declare its hosts.
func (s *synthesis) count(o *config.Object, by int, touched map[registry.Key]bool) {
	if o == nil {
		return
	}
	se, ok := o.Spec.(*networking.ServiceEntry)
	if !ok {
		return
	}
	for _, host := range se.Hosts {
		if s.declared == nil {
			s.declared = map[string]int{}
		}
		if s.declared[host] += by; s.declared[host] == 0 {
			delete(s.declared, host)
		}
		if k, ok := s.at[host]; ok {
			touched[k] = true
		}
	}
}

// locate notes the key of a service that registries have, or have no more.
func (s *synthesis) locate(k registry.Key, has bool) {
	if s.at == nil {
		s.at = map[string]registry.Key{}
	}
	if has {
		s.at[k.Host] = k
	} else if s.at[k.Host] == k {
		delete(s.at, k.Host)
	}
}

// replace brings the ServiceEntry of one service up to date. One that an operator wrote under its
// name stays.
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

// made is the ServiceEntry of one service; nil: registries do not have it, or an object that is
// told declares its host.
func (s *synthesis) made(k registry.Key) *config.Object {
	svc := s.seen.Services.At(k)
	if svc == nil || s.declared[k.Host] > 0 {
		return nil
	}
	o := entry.Synthetic(registry.Instances{Service: svc, Endpoints: s.seen.Endpoints.At(k)})
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
	s.log.Warn("a service of a registry is not told to other control planes: it makes no valid ServiceEntry",
		"host", k.Host, "problem", why)
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
