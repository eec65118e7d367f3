package vip

import (
	"fmt"
	"slices"

	"github.com/ashore-mesh/ashore/internal/feed"
	"github.com/ashore-mesh/ashore/registry"
)

// trouble is what is told of all services that have no address. The zero value: each has one.
type trouble struct {
	group   string // with which it is told
	problem feed.Problem
}

// goWithout notes which services of a group, which may be nil, are passed on without an address.
func (d *desk) goWithout(g *group) {
	if g == nil {
		return
	}
	for _, k := range g.wanted {
		if l := d.lacking[k]; l != nil {
			l.without = true
		}
	}
}

// tell finds what is to be told now, and has the groups passed on that told, or are to tell, something else.
func (d *desk) tell() {
	now := d.trouble()
	if now == d.lacks {
		return
	}
	for _, name := range []string{d.lacks.group, now.group} {
		if d.groups[name] != nil {
			d.late[name] = true
		}
	}
	d.lacks = now
}

// trouble is one for all services that go without, however many: as a rule there is one cause.
func (d *desk) trouble() trouble {
	var first registry.Key
	n := 0
	for k, l := range d.lacking {
		if !l.without {
			continue
		}
		if n == 0 || k.Compare(first) < 0 {
			first = k
		}
		n++
	}
	if n == 0 {
		return trouble{}
	}
	var out trouble
	for name, g := range d.groups {
		if (out.group == "" || name < out.group) && slices.Contains(g.wanted, first) {
			out.group = name
		}
	}
	out.problem = feed.Problem{Severity: feed.Warning, Object: d.groups[out.group].object(first), Text: withoutAddress(first.Host, n-1, d.lacking[first].refused)}
	return out
}

// object is what declares a service of the group.
func (g *group) object(k registry.Key) string {
	i := slices.IndexFunc(g.update.Items, func(in registry.Instances) bool { return in.Service.Key == k })
	return g.update.Items[i].Service.Object
}

// withoutAddress says why a host and more of them have no address, and what comes of it.
func withoutAddress(host string, more int, refused error) string {
	effect := "connections that are not HTTP do not find it by an address of its own until then"
	if more > 0 {
		host = fmt.Sprintf("%s and %d more", host, more)
		effect = "connections that are not HTTP do not find them by addresses of their own until then"
	}
	if refused != nil {
		return fmt.Sprintf("no virtual address could be allocated for %s (tried again in a while; %s): %v", host, effect, refused)
	}
	return fmt.Sprintf("there is no virtual address for %s yet, because the store has not answered (%s): see whether it is slow or stuck, which is on the disk of the state folder, or in Consul where the setting store says so", host, effect)
}
