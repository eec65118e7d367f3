package push

import (
	"cmp"
	"maps"
	"slices"
	"strings"

	"github.com/ashore-mesh/ashore/registry"
)

// spots are the namespaces where registries' services of a host belong.
type spots struct {
	in string // with spaces between them
	// alone says that registries of ours have it, and that what is relayed of it is left out.
	alone bool
}

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
	out := spots{alone: !a.relayed && a.ours(host)}
	own := a.hosts[host][slices.MinFunc(slices.Collect(maps.Keys(a.hosts[host])), a.compare)]
	declared := slices.SortedFunc(maps.Values(a.declared[host]), func(s, o *registry.Service) int {
		return cmp.Or(s.Created.Compare(o.Created), cmp.Compare(s.Namespace, o.Namespace))
	})
	var in []string
	all := false // who would see the service by itself see one of these
	for _, d := range declared {
		in = append(in, d.Namespace)
		if all = a.covers(d, own); all {
			break
		}
	}
	if !all {
		in = append(in, own.Namespace)
	}
	out.in = strings.Join(in, " ")
	return out
}

// ours says that a registry of ours has a host.
func (a *adopter) ours(host string) bool {
	for _, s := range a.hosts[host] {
		if !s.Relayed {
			return true
		}
	}
	return false
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
