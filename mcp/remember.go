package mcp

import (
	"slices"

	"github.com/ashore-mesh/ashore/config"
	"github.com/ashore-mesh/ashore/internal/feed"
	"github.com/ashore-mesh/ashore/internal/lastgood"
)

var _ lastgood.Rememberer[*config.Object] = (*Source)(nil)

// Remember takes in what the source said before the start, so that a server which has lost a kind meanwhile is doubted as
// one is that loses it while we run. It is for before Run.
func (s *Source) Remember(kept []feed.Update[*config.Object]) {
	lists := map[config.Kind]list{}
	for _, l := range s.newest() {
		lists[l.kind.Kind] = l
	}
	for _, u := range kept {
		for _, o := range u.Items {
			if l, asked := lists[o.Kind]; asked {
				s.content.remember(l, o, u)
			}
		}
	}
}

// newest are the names of the kinds that are asked for, of each the one that counts first.
func (s *Source) newest() (out []list) {
	if s.cfg.legacy() {
		return slices.DeleteFunc(s.collections(), func(l list) bool { return l.rank > 0 })
	}
	for _, k := range s.cfg.kinds() {
		out = append(out, typeNames(k)[0])
	}
	return out
}

// remember notes an object that was listed before any stream.
func (c *content) remember(l list, o *config.Object, u feed.Update[*config.Object]) {
	name, at := nameOf(o.Key), c.listing(l)
	if c.foreign(o.Labels) || at.entries[name] != nil || c.total >= c.rules.most {
		return
	}
	at.entries[name] = &entry{object: o, asOf: u.AsOf}
	c.total++
}

// foreign says that labels name another revision than the one that is asked for.
func (c *content) foreign(labels map[string]string) bool {
	rev := labels[revisionLabel]
	return rev != "" && c.rules.revision != "" && rev != c.rules.revision
}
