package server

import (
	"slices"

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
	log  hclog.Logger
	last map[registry.Key]synthetic // of the last call, by service
}

// synthetic is the ServiceEntry of one service, with what it was made from.
type synthetic struct {
	from   registry.Instances
	object *config.Object // nil: it is invalid
}

// objects returns the exported objects with a ServiceEntry for each service. An object whose name a
// ServiceEntry would have takes its place. A service that did not change keeps its object.
func (s *synthesis) objects(now push.Exported) push.Objects {
	declared := map[string]bool{}
	for _, o := range now.Objects.All() {
		if se, ok := o.Spec.(*networking.ServiceEntry); ok {
			for _, host := range se.Hosts {
				declared[host] = true
			}
		}
	}
	all, next := now.Objects, map[registry.Key]synthetic{}
	for k, svc := range now.Services.All() {
		key := entry.SyntheticKey(k)
		if declared[k.Host] || now.Objects.At(key) != nil {
			continue
		}
		made := s.made(k, registry.Instances{Service: svc, Endpoints: now.Endpoints.At(k)})
		next[k] = made
		if made.object != nil {
			all = all.With(key, made.object)
		}
	}
	s.last = next
	return all
}

// made returns the ServiceEntry of one service. It logs why a changed service has none.
func (s *synthesis) made(k registry.Key, from registry.Instances) synthetic {
	last := s.last[k]
	if last.from == from {
		return last
	}
	o := entry.Synthetic(from)
	problems, ok := config.Accept(o)
	if !ok {
		i := slices.IndexFunc(problems, feed.Problem.IsError)
		s.log.Warn("a service of a registry is not served to other control planes: its ServiceEntry is invalid",
			"host", k.Host, "problem", problems[i].String())
		return synthetic{from: from}
	}
	return synthetic{from: from, object: o}
}
