package mcp

import (
	"fmt"
	"slices"

	"github.com/ashore-mesh/ashore/internal/feed"
)

// maxStrange bounds the problems of what belongs to no object, of one list.
const maxStrange = 20

// oddity is a resource that was refused, and of which nobody can tell which object it is.
type oddity struct {
	name    string // what stands outside of it; empty when nothing does
	sum     uint64 // tells equal ones apart from others
	problem feed.Problem
}

// besideAll are the problems of what a list says that belongs to no object.
func (l *listing) besideAll() (out []feed.Problem) {
	for _, o := range l.strange {
		out = append(out, o.problem)
	}
	if l.over != nil {
		out = append(out, *l.over)
	}
	return out
}

// oddities has the listing know what is refused of it now. Of a whole answer that is what stands there; of differences what
// stood before too: who is refused is not heard of again before it is other, or gone.
func (t *taking) oddities() {
	all := t.strange
	if !t.word.whole {
		named := t.word.names()
		all = slices.DeleteFunc(slices.Clone(t.at.strange), func(o oddity) bool {
			return o.name != "" && named[o.name] || slices.ContainsFunc(t.strange, func(n oddity) bool { return n.sum == o.sum })
		})
		all = append(all, t.strange...)
	}
	if len(all) > maxStrange {
		more := oddity{problem: feed.Problem{Severity: feed.Error, Since: t.now, Stale: true,
			Text: fmt.Sprintf("%s: more resources were refused than the %d that are named: their names are in the log of the server; this is a problem until it lists all anew", t.at.name, maxStrange)}}
		all = append(all[:maxStrange:maxStrange], more)
	}
	t.at.strange = all
}

// names are those that stand outside of what the word names.
func (w *word) names() map[string]bool {
	out := map[string]bool{}
	for i := range w.items {
		if name := w.items[i].name; name != "" {
			out[name] = true
		}
	}
	for _, name := range w.removed {
		out[name] = true
	}
	return out
}

// untold notes a resource of which nobody can tell which object it is.
func (t *taking) untold(it *item, why error) {
	t.unread = true
	which := fmt.Sprintf("resource %q was refused", clip(it.label()))
	if it.label() == "" {
		which = "a resource whose name cannot be read was refused"
	}
	p := feed.Problem{Severity: feed.Error, Since: t.now, Stale: len(t.at.entries) > 0, // it may be a newer one of any of them
		Text: fmt.Sprintf("%s: %s: %s", t.at.name, which, why)}
	if it.name == "" && !t.word.whole {
		p.Text += "; this is a problem until the server lists all anew, as when it is connected to again"
	}
	if len(t.strange) <= maxStrange {
		t.strange = append(t.strange, oddity{name: it.name, sum: it.sum(t.seed), problem: p})
	}
	t.refuse(1, p)
}

// label is what a resource of which nobody can tell the object is called.
func (it *item) label() string {
	if it.name != "" {
		return it.name
	}
	return it.res.GetMetadata().GetName()
}
