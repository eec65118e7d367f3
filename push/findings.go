package push

import (
	"cmp"
	"maps"
	"slices"

	"github.com/ashore-mesh/ashore/config"
	"github.com/ashore-mesh/ashore/internal/feed"
)

// place is where problems are looked for: the objects of one key, a group of the deriver, or what of one kind meets,
// such as VirtualServices at one host.
type place struct {
	object config.Key
	group  string
}

func (p place) compare(o place) int {
	return cmp.Or(p.object.Compare(o.object), cmp.Compare(p.group, o.group))
}

// finding is a problem that no source knows of, since it lies between what they say.
type finding struct {
	problem feed.Problem
	// what makes it the same one as before, together with object and field, wherever in its file it has moved to.
	what string
}

func (f finding) same(o finding) bool {
	return f.what == o.what && f.problem.Object == o.problem.Object && f.problem.Field == o.problem.Field && f.problem.Severity == o.problem.Severity
}

// findings are what was found, by place, and what was told of it.
type findings struct {
	now, told map[place][]finding
	news      map[place]bool // where the two may differ
}

func newFindings() findings {
	return findings{now: map[place][]finding{}, told: map[place][]finding{}, news: map[place]bool{}}
}

// set replaces what was found at a place.
func (f *findings) set(at place, found []finding) {
	if len(found) == 0 && len(f.now[at]) == 0 {
		return
	}
	f.now[at] = found
	if len(found) == 0 {
		delete(f.now, at)
	}
	f.news[at] = true
}

// tell says once what appeared and what is gone since it was called last.
func (f *findings) tell(report func(appeared, gone []feed.Problem)) {
	if len(f.news) == 0 {
		return
	}
	var appeared, gone []feed.Problem
	for _, at := range slices.SortedFunc(maps.Keys(f.news), place.compare) {
		told, now := f.told[at], f.now[at]
		appeared = append(appeared, missing(now, told)...)
		gone = append(gone, missing(told, now)...)
		f.told[at] = now
		if len(now) == 0 {
			delete(f.told, at)
		}
	}
	clear(f.news)
	if report != nil && len(appeared)+len(gone) > 0 {
		report(appeared, gone)
	}
}

// missing lists what is in list and not in other.
func missing(list, other []finding) []feed.Problem {
	var out []feed.Problem
	for _, f := range list {
		if !slices.ContainsFunc(other, f.same) {
			out = append(out, f.problem)
		}
	}
	return out
}
