package push

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/ashore-mesh/ashore/internal/feed"
	"github.com/ashore-mesh/ashore/registry"
)

// A service that moves from one source to another by a change of the list is gone here before it is known there. So what sources of
// services said that the list has no more, or has another one of their name for, stays in use until all that came was seen. What one
// says that has a source's place is its own word at once; what it does not say any more stays beside that, as if a source had said it
// which left.

// arrival is how long the parts of what moved may be on their way to several sources: until then all of it stays, also what one of
// those that came has.
const arrival = 10 * time.Second

// moving is what is under way since the list of sources of services changed. Nothing that foreign sources say changes it.
type moving struct {
	came   map[string]bool   // the sources that began with a change of the list; true: they have said everything since
	unseen map[string]bool   // those of them of which not all was seen since
	former map[string]string // whose services those are that stay of sources that are in the list, by the name under which they are merged
	made   int               // counts these names
	stands map[string]bool   // the sources of which people are told that services stay
	until  time.Time         // when the latest change has arrived; zero: it has
}

func newMoving() moving {
	return moving{came: map[string]bool{}, unseen: map[string]bool{}, former: map[string]string{}, stands: map[string]bool{}}
}

// arrange takes in which sources there are, and which of them began with the change.
func (m *moving) arrange(names, came []string, now time.Time) {
	gone := func(name string, _ bool) bool { return !slices.Contains(names, name) }
	maps.DeleteFunc(m.came, gone)
	maps.DeleteFunc(m.unseen, gone)
	for _, name := range came {
		m.came[name], m.unseen[name] = false, true
	}
	m.until = now.Add(arrival)
}

// settle ends it: nothing of sources stays that does not belong to the list.
func (m *moving) settle() {
	clear(m.came)
	clear(m.former)
	m.until = time.Time{}
}

// place puts what stays of a source after all that came, by whose word that counts which moved, and before all others.
func (m *moving) place(names []string, former string) []string {
	last := 0
	for i, name := range names {
		if _, came := m.came[name]; came {
			last = i + 1
		}
	}
	return slices.Insert(slices.Clone(names), last, former)
}

// source is whose services those are that are merged under a name.
func (m *moving) source(name string) string {
	if of, is := m.former[name]; is {
		return of
	}
	return name
}

// remain keeps in use what a source that came does not say any more, of what was said under its name before. Call it before that is
// forgotten.
func (a *Assembler) remain(b feed.Batch[registry.Instances], now time.Time) {
	if !b.Full || !a.moves.unseen[b.Source] || standsIn(b) {
		return
	}
	a.moves.came[b.Source] = true
	former := a.adopts.unsaid(b)
	if len(former) == 0 {
		return
	}
	a.moves.made++
	name := fmt.Sprintf("%s before %d", b.Source, a.moves.made) // no source is called so
	a.mu.Lock()
	a.moves.former[name] = b.Source
	a.mu.Unlock()
	if a.own != nil && a.own.left[b.Source] {
		a.own.left[name] = true
	}
	_, instances := a.cfg.names(a.cfg.Sources)
	a.rankInstances(a.moves.place(a.instances.With(instances), name), now)
	a.adopt(feed.Batch[registry.Instances]{Source: name, Full: true, Updates: former}, now)
}

// standsIn says that a batch is no word of its source, which is away: what was kept under its name stands in, which is all that was
// said under it, or nothing where that is too old by the settings, and is to be gone.
func standsIn(b feed.Batch[registry.Instances]) bool {
	return b.Standing != nil && b.Standing.Error != "" && !slices.ContainsFunc(b.Updates, func(u feed.Update[registry.Instances]) bool { return !u.Kept })
}

// saw takes note that all of a source was seen since it came, if it was.
func (a *Assembler) saw(source string) {
	if a.moves.unseen[source] && !slices.Contains(a.instances.Unseen(), source) {
		delete(a.moves.unseen, source)
	}
}

// moved looks at what stays once all of a change has arrived, and returns after how long that is; zero: it has.
func (a *Assembler) moved(now time.Time) time.Duration {
	if a.moves.until.IsZero() {
		return 0
	}
	if wait := a.moves.until.Sub(now); wait > 0 {
		return wait
	}
	a.moves.until = time.Time{}
	a.yield(now)
	return 0
}

// yield lets go of what stays of a host that a source has which came, once all of the change has arrived: what stays grows old, and
// one source that cannot be read should not have the others' services do.
func (a *Assembler) yield(now time.Time) {
	if !a.leaving || !a.moves.until.IsZero() {
		return
	}
	_, instances := a.cfg.names(a.cfg.Sources)
	for _, name := range a.instances.Besides(instances) {
		if left := a.adopts.left(name, a.moves.came); len(left) > 0 {
			a.adopt(feed.Batch[registry.Instances]{Source: name, Updates: left}, now)
		}
	}
}

// standMoving has people told of services that stay although the list has nobody any more who says them; it calls nobody for it, for
// mostly that is so for a moment.
func (a *Assembler) standMoving() {
	if !a.leaving && len(a.moves.stands) == 0 {
		return
	}
	_, instances := a.cfg.names(a.cfg.Sources)
	waits := a.unread()
	for name := range a.moves.unseen {
		if !slices.Contains(waits, name) {
			waits = append(waits, name)
		}
	}
	slices.Sort(waits)
	hosts := map[string]map[string]bool{}
	if a.leaving {
		for _, name := range a.instances.Besides(instances) {
			a.adopts.hostsOf(name, a.moves.source(name), hosts)
		}
	}
	if len(hosts)+len(a.moves.stands) == 0 {
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	for source := range a.moves.stands {
		delete(a.between, movingPlace(source))
	}
	clear(a.moves.stands)
	for source, of := range hosts {
		p := feed.Problem{Severity: feed.Warning, Source: source, Stale: true, Text: fmt.Sprintf(
			"the list of sources changed, and services that it had may be now in what was not read since, %s: they stay in use until that is read (%s); take that out of the list too if it is away for good",
			strings.Join(waits, ", "), some(slices.Sorted(maps.Keys(of))))}
		a.between[movingPlace(source)], a.moves.stands[source] = []finding{{problem: p}}, true
	}
}

// movingPlace is where it stands that services of a source stay.
func movingPlace(source string) place { return place{group: "moving " + source} }
