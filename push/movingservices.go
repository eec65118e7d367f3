package push

import (
	"cmp"
	"slices"

	"github.com/ashore-mesh/ashore/internal/feed"
	"github.com/ashore-mesh/ashore/registry"
)

// hostsOf adds the hosts of which a source has said something to those of a name.
func (a *adopter) hostsOf(source, name string, to map[string]map[string]bool) {
	for at, u := range a.said {
		for _, in := range u.Items {
			if at.source != source {
				break
			}
			if to[name] == nil {
				to[name] = map[string]bool{}
			}
			to[name][in.Service.Host] = true
		}
	}
}

// unsaid is what was said under the name of a source of hosts that it says nothing of in a batch which is all that it has.
func (a *adopter) unsaid(b feed.Batch[registry.Instances]) []feed.Update[registry.Instances] {
	said := map[string]bool{}
	for _, u := range b.Updates {
		for _, in := range u.Items {
			said[in.Service.Host] = true
		}
	}
	rest := a.rest(b.Source, func(host string) bool { return said[host] })
	return slices.DeleteFunc(rest, func(u feed.Update[registry.Instances]) bool { return len(u.Items) == 0 })
}

// left are those groups of a source of which something is of a host that one of those which came has, without that. What was kept of
// one that came from before the start is no word of it.
func (a *adopter) left(source string, came map[string]bool) []feed.Update[registry.Instances] {
	rest := a.rest(source, func(host string) bool {
		for at := range a.hosts[host] {
			if came[at.source] && !a.said[at].Kept {
				return true
			}
		}
		return false
	})
	return slices.DeleteFunc(rest, func(u feed.Update[registry.Instances]) bool {
		return len(u.Items) == len(a.said[sourceGroup{source, u.Group}].Items)
	})
}

// rest is what a source has said, in order, without what is of hosts that are elsewhere, and without its problems.
func (a *adopter) rest(source string, elsewhere func(host string) bool) (out []feed.Update[registry.Instances]) {
	for at, u := range a.said {
		if at.source == source {
			items := slices.DeleteFunc(slices.Clone(u.Items), func(in registry.Instances) bool { return elsewhere(in.Service.Host) })
			out = append(out, feed.Update[registry.Instances]{Group: u.Group, Items: items, AsOf: u.AsOf})
		}
	}
	slices.SortFunc(out, func(x, y feed.Update[registry.Instances]) int { return cmp.Compare(x.Group, y.Group) })
	return out
}
