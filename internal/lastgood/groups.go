package lastgood

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/ashore-mesh/ashore/internal/feed"
)

// A group may be away while the source is in touch, as one datacenter of several is. It then has an age of its own, and so have
// the groups within it: they may be too old while others are not.

// noteAway takes in whether a group is away, which may tell for those within it alone.
func (k *keeping[T]) noteAway(u feed.Update[T]) {
	if u.Away.IsZero() {
		delete(k.away, u.Group)
		return
	}
	k.away[u.Group] = u.Away
}

// oldestGroup is since when the group is away that is the next to be too old; zero: there is none, or any age will do.
func (k *keeping[T]) oldestGroup() (first time.Time) {
	if k.cfg.MaxAge == 0 || k.spare {
		return first
	}
	for group, since := range k.away {
		if !k.old[group] && (first.IsZero() || since.Before(first)) {
			first = since
		}
	}
	return first
}

// agedGroups finds which groups are too old, and returns those of which that has changed, as they are passed on now, with the
// groups within them where it concerns these.
func (k *keeping[T]) agedGroups(now time.Time) []feed.Update[T] {
	if k.cfg.MaxAge == 0 || len(k.away) == 0 && len(k.old) == 0 {
		return nil
	}
	changed := map[string]bool{}
	for group, since := range k.away {
		if !k.old[group] && now.Sub(since) >= k.cfg.MaxAge {
			k.old[group], changed[group] = true, true
			k.cfg.Log.Error("content of a part of a source is older than its setting maxAge allows", "source", k.cfg.Source.Name(), "part", group,
				"as_of", since, "max_age", k.cfg.MaxAge, "dropped", k.cfg.Drop)
		}
	}
	for group := range k.old {
		if since, away := k.away[group]; !away || now.Sub(since) < k.cfg.MaxAge {
			delete(k.old, group)
			changed[group] = true
		}
	}
	if len(changed) == 0 {
		return nil
	}
	var out []feed.Update[T]
	for _, group := range slices.Sorted(maps.Keys(k.groups)) {
		if u := k.groups[group]; changed[group] || k.cfg.Drop && changed[u.Within] {
			out = append(out, k.shown(u))
		}
	}
	return out
}

// shownIn are the updates of a batch that was noted, as they are passed on, and those that follow from them.
func (k *keeping[T]) shownIn(b feed.Batch[T], now time.Time) []feed.Update[T] {
	besides := k.agedGroups(now)
	if len(k.old) == 0 && len(besides) == 0 {
		return b.Updates
	}
	out, named := make([]feed.Update[T], 0, len(b.Updates)), make(map[string]bool, len(b.Updates))
	for _, u := range b.Updates {
		out, named[u.Group] = append(out, k.shown(u)), true
	}
	for _, u := range besides {
		if !named[u.Group] {
			out = append(out, u)
		}
	}
	return out
}

// shown is a group as it is passed on: one that is too old says so, and has nothing where that is to be dropped.
func (k *keeping[T]) shown(u feed.Update[T]) feed.Update[T] {
	if k.cfg.Drop && (k.old[u.Group] || u.Within != "" && k.old[u.Within]) {
		u.Items = nil
	}
	if !k.old[u.Group] {
		return u
	}
	u.Problems = slices.Clone(u.Problems)
	for i := range u.Problems {
		if p := &u.Problems[i]; p.Stale {
			what := "stays in use"
			if k.cfg.Drop {
				what = "counts as gone"
			}
			p.Text += fmt.Sprintf("; its content of %s is older than the setting maxAge (%s) allows, and %s", u.Away.UTC().Format(time.RFC3339), k.cfg.MaxAge, what)
		}
	}
	return u
}

// remembered are the groups as they were kept, each with when it was last known to be right, and with the problem of what cannot
// be read alone: the others may be over.
func (k *keeping[T]) remembered() []feed.Update[T] {
	out := make([]feed.Update[T], 0, len(k.groups))
	for _, group := range slices.Sorted(maps.Keys(k.groups)) {
		u := k.groups[group]
		p, unread := k.unread[group]
		if len(u.Items) == 0 && !unread && (u.Away.IsZero() || len(u.Problems) == 0) {
			continue
		}
		if u.Problems = nil; unread {
			u.Problems = []feed.Problem{p}
		}
		last := k.asOf
		for _, since := range []time.Time{u.Away, k.groups[u.Within].Away} {
			if !since.IsZero() && (last.IsZero() || since.Before(last)) {
				last = since
			}
		}
		u.Away = last
		out = append(out, u)
	}
	return out
}
