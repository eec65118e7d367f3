package feed

import (
	"cmp"
	"maps"
	"slices"
	"time"
)

// Merger keeps the latest content of every group of every source and finds what counts for each
// key. Where several supply one key, the source that is named first counts, within a source the group
// that was there first, and within a group the item that stands first; Problems tells of the others.
// Not safe for concurrent use.
type Merger[K comparable, T any] struct {
	key     func(T) K
	sources map[string]*sourceState
	groups  map[GroupID]*group[K]
	byKey   map[K][]supply[T]
	next    int    // orders groups by arrival
	doubts  uint64 // see Doubts
}

// GroupID is a group of a source.
type GroupID struct{ Source, Group string }

type group[K comparable] struct {
	order    int
	keys     []K
	problems []Problem
	asOf     time.Time
	edited   time.Time
	kept     bool // as in Update
	first    bool // it is what was first seen of it since the start, as all that its source has was, and was not edited since
}

// supply is one item and who supplied it.
type supply[T any] struct {
	source *sourceState
	order  int
	item   T
}

// compare orders by what counts first.
func (s supply[T]) compare(o supply[T]) int {
	return cmp.Or(cmp.Compare(s.source.rank, o.source.rank), cmp.Compare(s.order, o.order))
}

type sourceState struct {
	name   string // set once
	rank   int
	began  bool // it has been there since the start
	synced bool
	looked bool // all of it was seen since the start
	anew   bool // another one has taken its place, and has not said everything
	last   time.Time
	items  int
	odd    int // groups of which there may be something else than was seen
	stands Standing
	took   time.Duration // from when the last change was noticed to here
	// overcome is the latest error that is over, and overcomeAt since when.
	overcome   string
	overcomeAt time.Time
}

// SourceStatus is how a source stands, for people.
type SourceStatus struct {
	Name string `json:"name"`
	// Synced says that its first complete state has arrived, Required that nothing is served before it has.
	Synced   bool `json:"synced"`
	Required bool `json:"required"`
	// Items and Problems count what it supplies and what is wrong with it.
	Items    int `json:"items"`
	Problems int `json:"problems"`
	// Stale counts the groups of which older content is in use than there is, or may be, at their origin.
	Stale int `json:"stale"`
	// AsOf is when the oldest content of those was current; zero when there is none, or nobody knows.
	AsOf time.Time `json:"asOf,omitzero"`
	// Why is what keeps newer content of the oldest of those groups from being in use, with what it is about.
	Why string `json:"why,omitempty"`
	// Last is when its content last changed, or was said anew.
	Last time.Time `json:"last,omitzero"`
	// Error is why it is not in touch with its origin; empty: it is. Since is when that began.
	Error string    `json:"error,omitempty"`
	Since time.Time `json:"since,omitzero"`
	// Lag is how long its last change took from the origin to here, in nanoseconds; zero: nobody knows.
	Lag time.Duration `json:"lag,omitempty"`
	// Reading is how many files it is reading, which are not in use yet; zero: it is not reading many.
	Reading int `json:"reading,omitempty"`
	// LastError is the latest error that is over, since LastErrorAt; empty: there was none.
	LastError   string    `json:"lastError,omitempty"`
	LastErrorAt time.Time `json:"lastErrorAt,omitzero"`
	// Setting is what it is called among the settings; empty: it is not one of those. The merger does not know it.
	Setting string `json:"setting,omitempty"`
}

// Title is what people call the source: by the settings, where it stands there.
func (s *SourceStatus) Title() string { return cmp.Or(s.Setting, s.Name) }

// StaleSince is of when the content is that is in use instead of what its origin has, or may have; zero: it is of now, or nobody
// knows.
func (s *SourceStatus) StaleSince() time.Time {
	if s.Synced && s.Error != "" {
		return s.Since
	}
	return s.AsOf
}

// NewMerger makes a merger for the sources of these names, the deciding one first. A name that is there again counts where it
// stands first.
func NewMerger[K comparable, T any](sources []string, key func(T) K) *Merger[K, T] {
	m := &Merger[K, T]{key: key, sources: map[string]*sourceState{}, groups: map[GroupID]*group[K]{}, byKey: map[K][]supply[T]{}}
	m.Arrange(sources)
	for _, s := range m.sources {
		s.began = true
	}
	return m
}

// Arrange replaces the sources by those of these names, the deciding one first, and returns the keys that it touched, in
// no order. What the others said is gone. Those that stay keep what they said, and count in the new order. A name that is there
// again counts where it stands first.
func (m *Merger[K, T]) Arrange(sources []string) []K {
	m.doubts++
	touched := map[K]bool{}
	for id := range m.groups {
		if !slices.Contains(sources, id.Source) {
			m.replace(m.sources[id.Source], id, Update[T]{}, touched)
		}
	}
	maps.DeleteFunc(m.sources, func(name string, _ *sourceState) bool { return !slices.Contains(sources, name) })
	ranked := make(map[string]bool, len(sources)) // ranks have no gaps: Sources counts on it
	for _, name := range sources {
		if ranked[name] {
			continue
		}
		if m.sources[name] == nil {
			m.sources[name] = &sourceState{name: name}
		}
		m.sources[name].rank = len(ranked)
		ranked[name] = true
	}
	for k, list := range m.byKey {
		if !slices.IsSortedFunc(list, supply[T].compare) {
			slices.SortFunc(list, supply[T].compare)
			touched[k] = true
		}
	}
	return slices.Collect(maps.Keys(touched))
}

// With are sources of these names and those besides that there are, which count where they did: before the next one of before that
// stays.
func (m *Merger[K, T]) With(names []string) []string {
	was := slices.SortedFunc(maps.Keys(m.sources), func(a, b string) int { return cmp.Compare(m.sources[a].rank, m.sources[b].rank) })
	out := slices.Clone(names)
	at := len(out)
	for _, name := range slices.Backward(was) {
		if i := slices.Index(out, name); i >= 0 {
			at = i
			continue
		}
		out = slices.Insert(out, at, name)
	}
	return out
}

// Besides are the sources that there are besides those of these names, in their order.
func (m *Merger[K, T]) Besides(names []string) []string {
	return slices.DeleteFunc(m.With(names), func(name string) bool { return slices.Contains(names, name) })
}

// Has says whether there is a source of this name.
func (m *Merger[K, T]) Has(source string) bool { return m.sources[source] != nil }

// Apply takes in a batch that arrived at now and returns the keys that it touched, in no order.
// A batch of a source that was not named is a mistake of the program and panics.
func (m *Merger[K, T]) Apply(b Batch[T], now time.Time) []K {
	src := m.sources[b.Source]
	if src == nil {
		panic("feed: batch of unknown source " + b.Source)
	}
	touched := map[K]bool{}
	synced, unseen := src.synced, src.unseen()
	named := make(map[string]bool, len(b.Updates))
	for _, u := range b.Updates {
		named[u.Group] = true
		id := GroupID{b.Source, u.Group}
		first := m.firstLook(src, id)
		m.replace(src, id, u, touched)
		if g := m.groups[id]; g != nil && first {
			g.first = true
		}
	}
	if b.Full {
		for id := range m.groups {
			if id.Source == b.Source && !named[id.Group] {
				m.replace(src, id, Update[T]{}, touched)
			}
		}
		src.synced, src.anew = true, false
	}
	if b.Standing != nil {
		if src.stands.Error != "" && b.Standing.Error == "" {
			src.overcome, src.overcomeAt = cmp.Or(src.stands.Cause, src.stands.Error), now
		}
		src.stands = *b.Standing
	}
	if b.Full || len(b.Updates) > 0 {
		src.last = now
		if !b.Since.IsZero() {
			src.took = max(0, now.Sub(b.Since))
		}
	}
	src.looked = src.looked || !src.unseen()
	if src.synced != synced || src.unseen() != unseen {
		m.doubts++
	}
	return slices.Collect(maps.Keys(touched))
}

// firstLook says that what is about to be said of a group is the first that is seen of it since the start.
func (m *Merger[K, T]) firstLook(src *sourceState, id GroupID) bool {
	if g := m.groups[id]; g != nil && src.synced {
		return src.began && g.kept
	}
	return src.began && !src.looked
}

// replace puts the content of u in the place of a group.
func (m *Merger[K, T]) replace(src *sourceState, id GroupID, u Update[T], touched map[K]bool) {
	g := m.groups[id]
	had := g != nil
	if !had {
		g = &group[K]{order: m.next}
		m.next++
		m.groups[id] = g
	}
	doubtful := m.doubtful(g)
	if g.unseen() {
		src.odd--
	}
	for _, k := range g.keys {
		touched[k] = true
		left := slices.DeleteFunc(m.byKey[k], func(s supply[T]) bool { return s.source == src && s.order == g.order })
		if len(left) == 0 {
			delete(m.byKey, k)
		} else {
			m.byKey[k] = left
		}
	}
	src.items += len(u.Items) - len(g.keys)
	g.first = g.first && g.edited.Equal(u.Edited)
	g.keys, g.problems, g.asOf, g.edited, g.kept = g.keys[:0], u.Problems, u.AsOf, u.Edited, u.Kept
	for _, item := range u.Items {
		k := m.key(item)
		touched[k] = true
		g.keys = append(g.keys, k)
		m.byKey[k] = insert(m.byKey[k], supply[T]{source: src, order: g.order, item: item})
	}
	has := len(g.keys) > 0 || len(g.problems) > 0 || g.kept
	if !has {
		delete(m.groups, id)
	}
	if g.unseen() {
		src.odd++
	}
	if doubtful || m.doubtful(g) || had != has && src.unseen() {
		m.doubts++
	}
}

// insert keeps supplies in the order in which they count: s comes after those of its own group.
func insert[T any](list []supply[T], s supply[T]) []supply[T] {
	i := len(list)
	for i > 0 && s.compare(list[i-1]) < 0 {
		i--
	}
	return slices.Insert(list, i, s)
}

// Items lists what is supplied for k, what counts first.
func (m *Merger[K, T]) Items(k K) []T {
	out := make([]T, len(m.byKey[k]))
	for i, s := range m.byKey[k] {
		out[i] = s.item
	}
	return out
}

// Supply is an item and the name of the source that supplies it.
type Supply[T any] struct {
	Source string
	Item   T
}

// Supplies is Items, with who supplies each.
func (m *Merger[K, T]) Supplies(k K) []Supply[T] {
	out := make([]Supply[T], len(m.byKey[k]))
	for i, s := range m.byKey[k] {
		out[i] = Supply[T]{s.source.name, s.item}
	}
	return out
}

// Clashes counts the items that do not count, because others of their keys do.
func (m *Merger[K, T]) Clashes() (n int) {
	for _, list := range m.byKey {
		n += len(list) - 1
	}
	return n
}

// Waiting lists the sources that have not delivered their first complete state, in no order.
func (m *Merger[K, T]) Waiting() []string {
	var out []string
	for name, s := range m.sources {
		if !s.synced {
			out = append(out, name)
		}
	}
	return out
}

// Anew notes that other sources have taken the place of these. What was said under their names stays until they say otherwise.
func (m *Merger[K, T]) Anew(names []string) {
	m.doubts++
	for _, name := range names {
		if s := m.sources[name]; s != nil {
			s.anew = true
		}
	}
}

// Sources tells how each source stands, the deciding one first.
func (m *Merger[K, T]) Sources() []SourceStatus {
	out := make([]SourceStatus, len(m.sources))
	for name, s := range m.sources {
		out[s.rank] = SourceStatus{
			Name: name, Synced: s.synced, Items: s.items, Last: s.last,
			Error: s.stands.Error, Since: s.stands.Since, Lag: s.stands.Lag + s.took, Reading: s.stands.Reading, LastError: s.overcome, LastErrorAt: s.overcomeAt,
		}
		if s.stands.Error != "" {
			out[s.rank].Problems++
		}
		if s.stands.Besides != nil {
			out[s.rank].Problems++
		}
	}
	for id, g := range m.groups {
		s := &out[m.sources[id.Source].rank]
		s.Problems += len(g.problems)
		if of, stale := g.stale(); stale {
			s.Stale++
			if why := g.why(); s.Why == "" || of.Before(s.AsOf) || of.Equal(s.AsOf) && why < s.Why {
				s.Why = why
			}
			s.AsOf = earlier(s.AsOf, of)
		}
		for _, p := range g.problems {
			if p.Away && s.Error == "" {
				s.Error, s.Since = p.Text, p.Since
			}
		}
	}
	return out
}

// stale says whether older content of the group is in use, and of when: of what its source says, or of when what
// keeps the source from reading anew was first seen, if that was before.
func (g *group[K]) stale() (of time.Time, stale bool) {
	of = g.asOf
	for _, p := range g.problems {
		if p.Stale {
			stale, of = true, earlier(of, p.Since)
		}
	}
	return of, stale
}

// why is what keeps the group from being read anew.
func (g *group[K]) why() string {
	for _, p := range g.problems {
		if p.Stale {
			return p.String()
		}
	}
	return ""
}

// earlier is the earlier of two times, of which zero is not known.
func earlier(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}

// Problems lists all that is wrong, in no order (see SortProblems), and for each key that several supply what clash
// says of the one that counts and the others.
func (m *Merger[K, T]) Problems(clash func(counts, other T) Problem) []Problem {
	var out []Problem
	for name, s := range m.sources {
		if s.stands.Error != "" {
			out = append(out, Problem{Severity: Warning, Source: name, Text: s.stands.Error, Stale: s.items > 0, Since: s.stands.Since})
		}
		if p := s.stands.Besides; p != nil {
			out = append(out, *p)
			out[len(out)-1].Source = cmp.Or(p.Source, name)
		}
	}
	for id, g := range m.groups {
		for _, p := range g.problems {
			p.Source = cmp.Or(p.Source, id.Source)
			out = append(out, p)
		}
	}
	if clash != nil {
		for _, list := range m.byKey {
			for _, other := range list[1:] {
				out = append(out, clash(list[0].item, other.item))
			}
		}
	}
	return out
}
