package filestore

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/ashore-mesh/ashore/config"
	"github.com/ashore-mesh/ashore/internal/feed"
)

// An object that gets another name and a slip in one change is not one that was deleted and one that is refused: what
// protected until then would end, and nothing take its place. Nor is one whose kind is mistaken, or that takes the name of
// another one. So objects that a change took away stay, as guests, while there is an error in the file where they stood or
// in one that was changed with it.

// newcomers are the refused objects that have no last good version among those before.
func newcomers(r config.Result, before []*config.Object) []config.Key {
	if len(r.Broken) == 0 {
		return nil
	}
	known := keysOf(before)
	return slices.DeleteFunc(slices.Clone(r.Broken), func(k config.Key) bool { return known[k] })
}

func keysOf(objects []*config.Object) map[config.Key]bool {
	out := make(map[config.Key]bool, len(objects))
	for _, o := range objects {
		out[o.Key] = true
	}
	return out
}

// heirOf is the first newcomer of its kind, which an object may have become; the zero Key when there is none.
func heirOf(newcomers []config.Key, o *config.Object) config.Key {
	i := slices.IndexFunc(newcomers, func(k config.Key) bool { return k.Kind == o.Kind })
	if i < 0 {
		return config.Key{}
	}
	return newcomers[i]
}

// lingering are the problems of the guests that count: that they are in use still, why, and how to end it.
func (f *file) lingering(o owners) []config.Problem {
	var out []config.Problem
	for _, k := range slices.SortedFunc(maps.Keys(f.guests), config.Key.Compare) {
		if o[k][0].file != f.name {
			continue
		}
		if len(out) == config.MaxProblems {
			more := config.Problem{Severity: feed.Error, File: f.name, Stale: true,
				Text: fmt.Sprintf("more than %d objects were taken away and stay in use, because this file has errors: mend these to see the rest", config.MaxProblems)}
			return append(out, more)
		}
		heir := f.guests[k]
		p := config.Problem{Severity: feed.Error, Object: k.String(), File: f.name, Line: lineOf(f.issues, heir), Stale: true}
		why, todo := fmt.Sprintf("while %s is refused, which may be what became of it", heir), fmt.Sprintf("mend %s, or, if the removal is meant, take that out too", heir)
		switch {
		case heir == (config.Key{}) && !f.unread:
			why, todo = "while this file has an error", "put it back, or, if the removal is meant, mend the rest of the file: then it goes"
		case heir == (config.Key{}):
			why, todo = "while a part of this file cannot be read, which may be what became of it", "mend that part, or, if the removal is meant, take the part out too"
		}
		p.Text = fmt.Sprintf("it was taken away %s: its last good version, of %s, stays in use; %s", why, when(f.goodAt), todo)
		out = append(out, p)
	}
	return out
}

// lineOf is the line of the first problem of an object.
func lineOf(problems []config.Problem, k config.Key) int {
	i := slices.IndexFunc(problems, func(p config.Problem) bool { return p.Object == k.String() })
	if i < 0 {
		return 0
	}
	return problems[i].Line
}

// dismiss ends the stay of guests of other files that a file defines, when it was changed lately: they
// were moved to it. One that it defined all along was not.
func (f *folder) dismiss(x *file) {
	if len(f.index.withRetained) == 0 || !f.recent(x) {
		return
	}
	for _, o := range x.objects {
		if len(f.owners[o.Key]) < 2 || x.isGuest(o.Key) {
			continue
		}
		for _, name := range slices.Sorted(maps.Keys(f.index.withRetained)) {
			if host := f.files[name]; host != x && host.isGuest(o.Key) {
				host.part(o.Key)
				f.supply(host)
				f.keep.put(host.name, f.standIn(host))
			}
		}
	}
}

// isGuest says that an object stays in a file that does not name it.
func (f *file) isGuest(k config.Key) bool {
	_, guest := f.guests[k]
	return guest
}

// part ends the stay of a guest.
func (f *file) part(k config.Key) {
	f.objects = slices.DeleteFunc(slices.Clone(f.objects), func(o *config.Object) bool { return o.Key == k })
	f.held, f.guests = maps.Clone(f.held), maps.Clone(f.guests)
	delete(f.held, k)
	delete(f.guests, k)
}

// unprotected marks refused objects that should protect, and have no version in use.
func (f *file) unprotected(problems []config.Problem) []config.Problem {
	if len(problems) == 0 {
		return nil
	}
	inUse := make(map[string]bool, len(f.objects))
	for _, o := range f.objects {
		inUse[o.Key.String()] = true
	}
	out := slices.Clone(problems)
	for i := range out {
		p := &out[i]
		kind, _, _ := strings.Cut(p.Object, " ")
		info, ok := config.Info(config.Kind(kind))
		p.Unenforced = ok && info.Protects && p.Severity == feed.Error && !inUse[p.Object]
	}
	return out
}
