package push

import (
	"cmp"
	"maps"
	"slices"

	"github.com/ashore-mesh/ashore/registry"
)

// spots are the namespaces where registries' services of a host belong; besides is empty where that is one.
type spots struct{ at, besides string }

// allSpots are those of all hosts that registries have.
func (a *adopter) allSpots() map[string]spots {
	out := make(map[string]spots, len(a.hosts))
	for host := range a.hosts {
		out[host] = a.spots(host)
	}
	return out
}

// spots are where the services of a host belong.
func (a *adopter) spots(host string) spots {
	if len(a.hosts[host]) == 0 {
		return spots{}
	}
	own := a.hosts[host][slices.MinFunc(slices.Collect(maps.Keys(a.hosts[host])), a.compare)]
	declared := slices.SortedFunc(maps.Values(a.declared[host]), func(s, o *registry.Service) int {
		return cmp.Or(s.Created.Compare(o.Created), cmp.Compare(s.Namespace, o.Namespace))
	})
	seen := func(s *registry.Service) bool { return a.covers(s, own) }
	switch i := slices.IndexFunc(declared, seen); {
	case len(declared) == 0:
		return spots{at: own.Namespace}
	case i == 0:
		return spots{at: declared[0].Namespace}
	case i > 0:
		return spots{at: declared[0].Namespace, besides: declared[i].Namespace}
	default:
		return spots{at: declared[0].Namespace, besides: own.Namespace}
	}
}

// covers says that all who would see a registry's service by itself see what declares its host. In its own namespace that decides who
// sees it.
func (a *adopter) covers(declared, own *registry.Service) bool {
	if declared.Namespace == own.Namespace {
		return true
	}
	to := exportTo(declared.ExportTo, a.exportTo)
	return !slices.ContainsFunc(audience(exportTo(own.ExportTo, a.exportTo), own.Namespace), func(client string) bool {
		return !visibleTo(to, declared.Namespace, client)
	})
}
