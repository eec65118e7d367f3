package push

import (
	"cmp"
	"maps"
	"slices"
	"strings"

	"github.com/ashore-mesh/ashore/internal/feed"
	"github.com/ashore-mesh/ashore/registry"
)

// adopter makes one service of one host name, whoever knows of it. Registries know nothing of namespaces: their service of a
// host is in the namespace of the configuration that declares the host, the oldest where several do; where none does, in that of the
// first source that has it, and what other control planes' registries know is the last one. Declarations of configuration in several
// namespaces stay several services. Where the declaration is exported to fewer than would see the registries' service by itself, that
// is besides where the others see it: with each of the older ones until one that all of them see, or else as where none declares it.
type adopter struct {
	declared map[string]map[string]*registry.Service // of configuration, by host and namespace
	groups   map[string][]registry.Key               // what each group of configuration declares
	said     map[sourceGroup]feed.Update[registry.Instances]
	hosts    map[string]map[sourceGroup]*registry.Service // who has a host, and as what
	exportTo []string                                     // who sees a service that does not say; set once
	relayed  bool                                         // what is relayed counts beside what registries of ours know of a host too; set once
	rank     map[string]int                               // of sources
	news     map[string]bool                              // hosts of which registries have said something since it was asked; nil: nobody asks
}

// sourceGroup is a group of a source.
type sourceGroup struct{ source, group string }

// newAdopter makes one. exportTo is the mesh's default of who sees a service; relayed is Merging.Relayed.
func newAdopter(exportTo []string, relayed bool) *adopter {
	return &adopter{
		exportTo: exportTo, relayed: relayed,
		declared: map[string]map[string]*registry.Service{}, groups: map[string][]registry.Key{}, said: map[sourceGroup]feed.Update[registry.Instances]{},
		hosts: map[string]map[sourceGroup]*registry.Service{}, rank: map[string]int{},
	}
}

// arrange takes in which sources there are, the deciding one first. What the others said is forgotten. It returns what is to
// be said anew of those that stay.
func (a *adopter) arrange(sources []string) []feed.Batch[registry.Instances] {
	before := a.allSpots()
	for host := range a.hosts { // whose word comes first may be other
		a.note(host)
	}
	a.rank = map[string]int{}
	for i, s := range sources {
		a.rank[s] = i
	}
	for at := range a.said {
		if _, ok := a.rank[at.source]; !ok {
			a.forget(at)
		}
	}
	return a.again(before, nil)
}

// declare takes in what configuration declares, and returns what registries are to say anew because of it.
func (a *adopter) declare(b feed.Batch[registry.Instances]) []feed.Batch[registry.Instances] {
	before := map[string]spots{}
	note := func(host string) {
		if _, ok := before[host]; !ok && len(a.hosts[host]) > 0 {
			before[host] = a.spots(host)
		}
	}
	drop := func(group string) {
		for _, k := range a.groups[group] {
			note(k.Host)
			delete(a.declared[k.Host], k.Namespace)
			if len(a.declared[k.Host]) == 0 {
				delete(a.declared, k.Host)
			}
		}
		delete(a.groups, group)
	}
	if b.Full {
		for group := range a.groups {
			drop(group)
		}
	}
	for _, u := range b.Updates {
		drop(u.Group)
		for _, in := range u.Items {
			k := in.Service.Key
			note(k.Host)
			if a.declared[k.Host] == nil {
				a.declared[k.Host] = map[string]*registry.Service{}
			}
			a.declared[k.Host][k.Namespace] = in.Service
			a.groups[u.Group] = append(a.groups[u.Group], k)
		}
	}
	return a.again(before, nil)
}

// adopt puts the services of a registry's batch into the namespaces where they belong. The rest is what other groups are to
// say anew because of it.
func (a *adopter) adopt(b feed.Batch[registry.Instances]) (out feed.Batch[registry.Instances], rest []feed.Batch[registry.Instances]) {
	before, named := map[string]spots{}, map[sourceGroup]bool{}
	for _, u := range b.Updates {
		named[sourceGroup{b.Source, u.Group}] = true
	}
	replaced := maps.Clone(named)
	if b.Full {
		for at := range a.said {
			if at.source == b.Source {
				replaced[at] = true
			}
		}
	}
	for at := range replaced {
		for _, in := range a.said[at].Items {
			if _, ok := before[in.Service.Host]; !ok {
				before[in.Service.Host] = a.spots(in.Service.Host)
			}
		}
	}
	for at := range replaced {
		a.forget(at)
	}
	for _, u := range b.Updates {
		at := sourceGroup{b.Source, u.Group}
		for _, in := range u.Items {
			host := in.Service.Host
			if _, ok := before[host]; !ok && len(a.hosts[host]) > 0 {
				before[host] = a.spots(host)
			}
			if a.hosts[host] == nil {
				a.hosts[host] = map[sourceGroup]*registry.Service{}
			}
			a.hosts[host][at] = in.Service
			a.note(host)
		}
		a.said[at] = u
	}
	out = b
	out.Updates = make([]feed.Update[registry.Instances], len(b.Updates))
	for i, u := range b.Updates {
		out.Updates[i] = a.placed(u)
	}
	return out, a.again(before, named)
}

// forget takes out what was said as a group.
func (a *adopter) forget(at sourceGroup) {
	for _, in := range a.said[at].Items {
		a.note(in.Service.Host)
		delete(a.hosts[in.Service.Host], at)
		if len(a.hosts[in.Service.Host]) == 0 {
			delete(a.hosts, in.Service.Host)
		}
	}
	delete(a.said, at)
}

// compare orders groups by what counts first.
func (a *adopter) compare(x, y sourceGroup) int {
	return cmp.Or(cmp.Compare(a.rank[x.source], a.rank[y.source]), cmp.Compare(x.group, y.group))
}

// sayers are the groups that have a host, what counts first.
func (a *adopter) sayers(host string) []sourceGroup {
	return slices.SortedFunc(maps.Keys(a.hosts[host]), a.compare)
}

// parts are what registries of our own say of a host, what counts first, as if no configuration declared it, nor the sources of these
// names said anything: in the namespace of the first.
func (a *adopter) parts(host string, without map[string]bool) (out []registry.Instances) {
	for _, at := range a.sayers(host) {
		if without[at.source] {
			continue
		}
		for _, in := range a.said[at].Items {
			if in.Service.Host != host || in.Service.Relayed {
				continue
			}
			if len(out) > 0 {
				in = inNamespace(in, out[0].Service.Namespace)
			}
			out = append(out, in)
		}
	}
	return out
}

// note notes that registries have said something of a host.
func (a *adopter) note(host string) {
	if a.news != nil {
		a.news[host] = true
	}
}

// noteSource notes all hosts of which a source has said something.
func (a *adopter) noteSource(name string) {
	for at, u := range a.said {
		if at.source == name {
			for _, in := range u.Items {
				a.note(in.Service.Host)
			}
		}
	}
}

// asked returns the hosts of which registries have said something since it was called last.
func (a *adopter) asked() map[string]bool {
	news := a.news
	a.news = map[string]bool{}
	return news
}

// placed is a group with its services where they belong.
func (a *adopter) placed(u feed.Update[registry.Instances]) feed.Update[registry.Instances] {
	items := make([]registry.Instances, 0, len(u.Items))
	for _, in := range u.Items {
		at := a.spots(in.Service.Host)
		if in.Service.Relayed && at.alone {
			continue
		}
		for _, namespace := range strings.Fields(at.in) {
			items = append(items, inNamespace(in, namespace))
		}
	}
	u.Items = items
	return u
}

// inNamespace is a service in a namespace.
func inNamespace(in registry.Instances, namespace string) registry.Instances {
	if namespace == in.Service.Namespace {
		return in
	}
	s := *in.Service
	s.Namespace = namespace
	in.Service = &s
	return in
}

// again are the groups whose services belong elsewhere than before, without those that are said anyway.
func (a *adopter) again(before map[string]spots, without map[sourceGroup]bool) []feed.Batch[registry.Instances] {
	moved := map[sourceGroup]bool{}
	for host, at := range before {
		if a.spots(host) == at {
			continue
		}
		for at := range a.hosts[host] {
			if !without[at] {
				moved[at] = true
			}
		}
	}
	return a.anew(moved)
}

// anew are groups as they are now.
func (a *adopter) anew(groups map[sourceGroup]bool) []feed.Batch[registry.Instances] {
	by := map[string][]feed.Update[registry.Instances]{}
	for _, at := range slices.SortedFunc(maps.Keys(groups), func(x, y sourceGroup) int {
		return cmp.Or(cmp.Compare(x.source, y.source), cmp.Compare(x.group, y.group))
	}) {
		by[at.source] = append(by[at.source], a.placed(a.said[at]))
	}
	var out []feed.Batch[registry.Instances]
	for _, source := range slices.Sorted(maps.Keys(by)) {
		out = append(out, feed.Batch[registry.Instances]{Source: source, Updates: by[source]})
	}
	return out
}
