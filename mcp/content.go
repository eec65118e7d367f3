package mcp

import (
	"cmp"
	"fmt"
	"hash/maphash"
	"maps"
	"slices"
	"time"

	"github.com/ashore-mesh/ashore/config"
	"github.com/ashore-mesh/ashore/internal/feed"
)

// content is what a server said, over all its streams, and what of it counts. Pure but for its own state; not safe for
// concurrent use.
//
// A server that comes back may know less than it did: it lost its own source, or has not read it yet. Whoever listed
// objects on a stream and takes them back on the same stream is believed. Whoever comes back with nothing where there was
// something is believed when that stands for a while.
type content struct {
	rules rules        // set once
	seed  maphash.Seed // set once
	lists map[string]*listing
	kinds map[config.Kind][]*listing // by rank
	total int                        // of entries
	bytes int                        // of what they were read from

	stream uint64 // the latest one on which something was said
}

// rules are what a content holds to.
type rules struct {
	source string // its name
	// revision, when not empty, leaves out objects whose label istio.io/rev names another one.
	revision string
	// keep says that a server which came back without any object at all is not believed, however long it stands by that.
	keep bool
	// emptyAfter is how long a server that came back with nothing has to stand by it, and how long the next part of a first
	// answer that differences follow may take.
	emptyAfter time.Duration
	// aliases says that all names of a kind mean the same: what is under none that a server knows may be under another.
	aliases bool
	// most is how many objects it may hold, and bytes how large all may be that they are read from; 0: any size.
	most, bytes int
}

// listing is what was said under one name of a kind.
type listing struct {
	list
	entries map[string]*entry    // by "namespace/name"
	sums    map[uint64]string    // names of entries by the sum of what they were read from
	leaving map[string]time.Time // names, and when they are gone
	emptied bool                 // leaving, because the server came back with nothing
	since   time.Time            // when it did
	lapse   lapse                // for how long it has to stand by that
	listed  uint64               // the last stream on which it had entries; 0: none
	over    *feed.Problem        // an answer was refused whole
	owed    map[uint64]bool      // sums of the names that stood in it; 0: of some that nobody can tell
	strange []oddity             // what is refused and could not be told from others
}

// entry is one object of a listing.
type entry struct {
	sum      uint64
	bytes    int            // of what it was read from
	object   *config.Object // the last good one; nil: there was none
	problems []feed.Problem
	asOf     time.Time
}

// word is what a server says of one list at once.
type word struct {
	list string
	// whole says that what is not named is gone. first says that it may go on: more of it may follow, and then only
	// what differs.
	whole, first bool
	items        []item
	removed      []string

	nonce, version string
}

// verdict is what became of a word.
type verdict struct {
	// changed are the groups that are other than before.
	changed []group
	// refused are what was not taken, each with why; count is how many objects that were.
	refused []feed.Problem
	count   int
	// sum tells equal refusals from others.
	sum uint64
}

// group names what is replaced at once: an object, or what a list says beside its objects when name is empty.
type group struct {
	kind   config.Kind
	name   string // "namespace/name", or of a list when beside
	beside bool
}

func (g group) String() string {
	if g.beside {
		return "list " + g.name
	}
	return string(g.kind) + " " + g.name
}

func (g group) compare(o group) int {
	return cmp.Or(cmp.Compare(g.kind, o.kind), cmp.Compare(g.name, o.name))
}

func newContent(r rules) *content {
	return &content{rules: r, seed: maphash.MakeSeed(), lists: map[string]*listing{}, kinds: map[config.Kind][]*listing{}}
}

// listing finds the listing of a list.
func (c *content) listing(l list) *listing {
	if found := c.lists[l.name]; found != nil {
		return found
	}
	made := &listing{list: l, entries: map[string]*entry{}, sums: map[uint64]string{}, leaving: map[string]time.Time{}}
	c.lists[l.name] = made
	all := append(c.kinds[l.kind.Kind], made)
	slices.SortStableFunc(all, func(a, b *listing) int { return cmp.Compare(a.rank, b.rank) })
	c.kinds[l.kind.Kind] = all
	return made
}

// take takes in what was said of l on a stream, of which later ones have higher numbers.
func (c *content) take(l list, w *word, stream uint64, now time.Time) verdict {
	c.stream = stream
	t := taking{content: c, at: c.listing(l), word: w, now: now, seen: map[string]bool{}, prior: map[string]*config.Object{}, changed: map[group]bool{}}
	return t.run(stream)
}

// taking is the taking in of one word.
type taking struct {
	*content
	at      *listing
	word    *word
	now     time.Time
	seen    map[string]bool           // names
	prior   map[string]*config.Object // what counted before, of names that were seen
	changed map[group]bool
	strange []oddity
	unread  bool // something was said of objects that cannot be told
	stayed  bool // something was leaving, and is named
	verdict verdict
}

// settled drops what was leaving for long enough, and returns what changed.
func (c *content) settled(now time.Time) []group {
	changed := map[group]bool{}
	for _, l := range c.lists {
		if c.kept(l) {
			continue
		}
		for name, at := range l.leaving {
			if now.Before(at) {
				continue
			}
			delete(l.leaving, name)
			c.drop(l, name)
			changed[group{kind: l.kind.Kind, name: name}] = true
		}
		if l.emptied && len(l.leaving) == 0 {
			l.emptied = false
			l.lapse.forget()
		}
	}
	return slices.SortedFunc(maps.Keys(changed), group.compare)
}

// due is when settled has something to do; zero: never.
func (c *content) due() (at time.Time) {
	for _, l := range c.lists {
		if c.kept(l) {
			continue
		}
		for _, t := range l.leaving {
			if at.IsZero() || t.Before(at) {
				at = t
			}
		}
	}
	return at
}

// lost notes that the stream ended: nothing leaves while nobody can say that it stays.
func (c *content) lost(now time.Time) {
	for _, l := range c.lists {
		if l.emptied && !c.kept(l) && len(l.leaving) > 0 {
			l.lapse.pause(now, slices.MaxFunc(slices.Collect(maps.Values(l.leaving)), time.Time.Compare))
		}
		clear(l.leaving)
		l.emptied = false
	}
}

// doubts says which lists came back empty and are not believed yet, and since when; empty: none.
func (c *content) doubts() (text string, since time.Time) {
	count, first := 0, (*listing)(nil)
	for _, name := range slices.Sorted(maps.Keys(c.lists)) {
		l := c.lists[name]
		if !l.emptied {
			continue
		}
		count += len(l.leaving)
		if first == nil || l.since.Before(since) {
			since = l.since
		}
		if first == nil {
			first = l
		}
	}
	if first == nil {
		return "", time.Time{}
	}
	if c.kept(first) {
		return fmt.Sprintf("it came back without any object: the %d that it listed before stay until it lists one again; if they are gone for good, set emptied: believe, and reload the settings: they go after emptyAfter (%s) then", count, c.rules.emptyAfter), since
	}
	return fmt.Sprintf("it came back without any %s: %d objects that it listed before stay until it has stood by that for %s (emptyAfter)", first.kind.Kind, count, c.rules.emptyAfter), since
}

// hollow says that the server has listed nothing at all on the latest stream.
func (c *content) hollow() bool {
	for _, l := range c.lists {
		if l.listed == c.stream {
			return false
		}
	}
	return true
}

// kept says that what leaves a listing stays all the same, for the server has lost everything.
func (c *content) kept(l *listing) bool { return l.emptied && c.rules.keep && c.hollow() }

// lasts says that there is something which a server that lists nothing does not take away.
func (c *content) lasts() bool { return c.rules.keep && c.total > 0 }

// drop forgets an entry.
func (c *content) drop(l *listing, name string) {
	if e, ok := l.entries[name]; ok {
		delete(l.entries, name)
		delete(l.sums, e.sum)
		c.total--
		c.bytes -= e.bytes
	}
}

// empty says that the server has listed nothing at all, not even something that was refused.
func (c *content) empty() bool {
	for _, l := range c.lists {
		if l.listed > 0 || len(l.strange) > 0 {
			return false
		}
	}
	return true
}

// held is how many entries there are under a name.
func (c *content) held(name string) int {
	if l := c.lists[name]; l != nil {
		return len(l.entries)
	}
	return 0
}

// groups are all that there are.
func (c *content) groups() []group {
	all := map[group]bool{}
	for _, l := range c.lists {
		for name := range l.entries {
			all[group{kind: l.kind.Kind, name: name}] = true
		}
		if l.over != nil || len(l.strange) > 0 {
			all[l.besides()] = true
		}
	}
	return slices.SortedFunc(maps.Keys(all), group.compare)
}

// besides is the group of what a list says that belongs to no object.
func (l *listing) besides() group { return group{kind: l.kind.Kind, name: l.name, beside: true} }

// update is what counts of a group.
func (c *content) update(g group) feed.Update[*config.Object] {
	u := feed.Update[*config.Object]{Group: g.String()}
	if g.beside {
		u.Problems = c.lists[g.name].besideAll()
		return u
	}
	var best *entry
	score := 0
	for _, l := range c.kinds[g.kind] {
		if e := l.entries[g.name]; e != nil && l.worth(g.name, e) > score {
			best, score = e, l.worth(g.name, e)
		}
	}
	if best == nil {
		return u
	}
	u.AsOf, u.Problems = best.asOf, best.problems
	if best.object != nil {
		u.Items = []*config.Object{best.object}
	}
	return u
}

// worth says how much an entry counts among those of other listings: it stays, it is good, it is there.
func (l *listing) worth(name string, e *entry) int {
	_, leaves := l.leaving[name]
	switch {
	case e.object == nil:
		return 1
	case leaves:
		return 2
	}
	return 3
}
