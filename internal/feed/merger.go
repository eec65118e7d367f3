package feed

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"time"
)

// Key identifies an item among all sources.
type Key interface {
	comparable
	fmt.Stringer
}

// Config says how a Merger keeps items.
type Config[K Key, T any] struct {
	// KeyOf returns the key of an item; required.
	KeyOf func(T) K
	// Union means that all items of a key are used together, such as one host's instances in two registries. What a source
	// lost is then retained beside what others supply, and several items of one key are no problem.
	Union bool
	// Settle is how long an item that no source supplies any more stays (R3). Zero: it is removed at once.
	Settle time.Duration
	// MassRemoval is how long items stay that a source lost together with most of its others (R4). Zero: until they return
	// or AcceptRemovals is called.
	MassRemoval time.Duration
}

// SourceConfig is one source of a Merger.
type SourceConfig struct {
	// Name is Source.Name.
	Name string
	// Required means that serving waits until the source has delivered, or has content from before the restart.
	Required bool
	// MaxAge is how long items of a source that is down are used, or of one that has not delivered since the restart. Zero: without
	// limit. It counts from the start when the source was down before.
	MaxAge time.Duration
	// DropStale removes the items of the source after MaxAge. Otherwise they stay, and a problem says so.
	DropStale bool
}

// Merger holds the latest content of every group of every source, and what is retained of former content. It has no clock and
// no goroutine: one goroutine owns it, and passes the time.
//
// Of several items with one key the first source of the list is used, within a source the first group by name, and
// within a group the first item. So the order of arrival does not matter.
type Merger[K Key, T any] struct {
	cfg     Config[K, T]
	sources map[string]*source[K, T]
	list    []*source[K, T] // those of SetSources, in their order

	items  map[K][]*item[K, T] // in order of use
	shared map[K]struct{}      // keys with several items

	invalid    map[string]map[*group[K, T]]struct{} // the groups that name a key as invalid
	unreadable map[*group[K, T]]struct{}
	unsaved    map[groupID]struct{} // groups that changed since TakeChanged

	nextRemoval time.Time // no removal is due before; zero: none is
}

// source is what is known of one source.
type source[K Key, T any] struct {
	SourceConfig
	rank   int
	listed bool // it is in the list of SetSources

	groups  map[string]*group[K, T]
	removed map[*item[K, T]]struct{}  // retained items
	faulty  map[*group[K, T]]struct{} // groups with problems

	synced     bool
	restored   time.Time // when content from before the restart was put in; zero: there was none
	expired    bool      // its items are older than MaxAge
	dropped    bool      // its items are not used, because they are
	left       bool      // it is not in the list any more, and its groups were removed
	down       string    // why it is down; empty: it is not
	downSince  time.Time
	lastDown   string
	lastDownAt time.Time // when lastDown ended
	lastUpdate time.Time
	reading    int

	items, problems, stale int // counters for Status
}

// item is one item of a group.
type item[K Key, T any] struct {
	group   *group[K, T]
	index   int // within the group
	key     K
	value   T
	stale   bool     // the group has a newer version, which cannot be used (R1)
	removal *removal // nil while the group supplies it
}

// compare orders items of one key by use.
func (i *item[K, T]) compare(o *item[K, T]) int {
	return cmp.Or(i.group.compare(o.group), cmp.Compare(i.index, o.index))
}

// NewMerger returns a merger without sources.
func NewMerger[K Key, T any](cfg Config[K, T]) *Merger[K, T] {
	return &Merger[K, T]{
		cfg:        cfg,
		sources:    map[string]*source[K, T]{},
		items:      map[K][]*item[K, T]{},
		shared:     map[K]struct{}{},
		invalid:    map[string]map[*group[K, T]]struct{}{},
		unreadable: map[*group[K, T]]struct{}{},
		unsaved:    map[groupID]struct{}{},
	}
}

// SetSources replaces the list of sources, most important first. Groups of a source that is not in the list any more are removed
// once all required sources have delivered, as R3 says. It returns the keys whose items changed, in no order.
func (m *Merger[K, T]) SetSources(list []SourceConfig, now time.Time) (changed []K) {
	for _, s := range m.sources {
		s.listed = false
	}
	m.list = nil
	for _, cfg := range list {
		s := m.source(cfg.Name)
		if s.listed {
			continue
		}
		s.SourceConfig, s.listed, s.left, s.rank = cfg, true, false, len(m.list)
		m.list = append(m.list, s)
	}
	for name, s := range m.sources {
		if !s.listed { // if it returns, its groups are like those from before a restart
			s.SourceConfig, s.rank, s.synced, s.restored, s.down = SourceConfig{Name: name}, len(m.list), false, now, ""
		}
	}
	c := m.newChange(now)
	for k := range m.shared {
		if list := m.items[k]; !slices.IsSortedFunc(list, (*item[K, T]).compare) {
			slices.SortStableFunc(list, (*item[K, T]).compare)
			c.keys[k] = struct{}{}
		}
	}
	m.removeUnlisted(c)
	return m.finish(c)
}

// source returns the source of a name, which it makes when there is none.
func (m *Merger[K, T]) source(name string) *source[K, T] {
	s := m.sources[name]
	if s == nil {
		s = &source[K, T]{
			SourceConfig: SourceConfig{Name: name},
			rank:         len(m.list),
			groups:       map[string]*group[K, T]{},
			removed:      map[*item[K, T]]struct{}{},
			faulty:       map[*group[K, T]]struct{}{},
		}
		m.sources[name] = s
	}
	return s
}

// removeUnlisted removes all groups of sources that are not in the list, when all required sources have delivered.
func (m *Merger[K, T]) removeUnlisted(c *change[K, T]) {
	if len(m.sources) == len(m.list) {
		return
	}
	for _, s := range m.list {
		if s.Required && !s.synced {
			return
		}
	}
	for _, s := range m.sources {
		if !s.listed && !s.left {
			m.removeSource(s, c)
		}
	}
}

// removeSource removes all groups of a source that is not in the list.
func (m *Merger[K, T]) removeSource(s *source[K, T], c *change[K, T]) {
	c.begin(s)
	c.unlisted, s.left = true, true
	for name := range s.groups {
		m.replace(s, Update[T]{Group: name}, c)
	}
	m.removeLost(c)
	if len(s.groups) == 0 {
		delete(m.sources, s.Name)
	}
}

// Apply takes in a batch and returns the keys whose items may have changed, in no order. A batch of a source that is not in the
// list is ignored.
func (m *Merger[K, T]) Apply(b Batch[T], now time.Time) (changed []K) {
	s := m.sources[b.Source]
	if s == nil || !s.listed {
		return nil
	}
	s.reading = b.Reading
	if b.Down != nil {
		if s.down == "" {
			s.downSince = now
		}
		s.down = b.Down.Error()
		return nil
	}
	c := m.newChange(now)
	m.setUp(s, b, c)
	c.begin(s)
	c.explicit = b.Explicit
	for _, u := range b.Updates {
		m.replace(s, u, c)
	}
	if b.Full {
		m.replaceOthers(s, b.Updates, c)
		s.synced = true
	}
	if b.Full || len(b.Updates) > 0 {
		s.lastUpdate = now
	}
	m.removeLost(c)
	m.removeUnlisted(c)
	return m.finish(c)
}

// setUp notes that a source reaches its origin.
func (m *Merger[K, T]) setUp(s *source[K, T], b Batch[T], c *change[K, T]) {
	if s.down != "" {
		s.lastDown, s.lastDownAt = s.down, c.now
		s.down, s.downSince = "", time.Time{}
	}
	if !s.synced && !b.Full && len(b.Updates) == 0 {
		return
	}
	dropped := s.dropped
	s.expired, s.dropped = false, false
	if !dropped {
		return
	}
	for _, g := range s.groups {
		for _, i := range g.items {
			m.add(i, c)
		}
	}
}

// replaceOthers removes the groups of a source that are not among updates.
func (m *Merger[K, T]) replaceOthers(s *source[K, T], updates []Update[T], c *change[K, T]) {
	named := make(map[string]struct{}, len(updates))
	for _, u := range updates {
		named[u.Group] = struct{}{}
	}
	for name := range s.groups {
		if _, ok := named[name]; !ok {
			m.replace(s, Update[T]{Group: name}, c)
		}
	}
}

// add puts an item among those of its key.
func (m *Merger[K, T]) add(i *item[K, T], c *change[K, T]) {
	list := m.items[i.key]
	at, _ := slices.BinarySearchFunc(list, i, (*item[K, T]).compare)
	m.set(i.key, slices.Insert(list, at, i), c)
}

// remove takes an item out of those of its key.
func (m *Merger[K, T]) remove(i *item[K, T], c *change[K, T]) {
	list := m.items[i.key]
	if at := slices.Index(list, i); at >= 0 {
		m.set(i.key, slices.Delete(list, at, at+1), c)
	}
}

func (m *Merger[K, T]) set(k K, list []*item[K, T], c *change[K, T]) {
	if len(list) == 0 {
		delete(m.items, k)
	} else {
		m.items[k] = list
	}
	if len(list) > 1 {
		m.shared[k] = struct{}{}
	} else {
		delete(m.shared, k)
	}
	c.keys[k] = struct{}{}
}

// change collects what one call does.
type change[K Key, T any] struct {
	now        time.Time
	keys       map[K]struct{} // whose items changed
	faultEnded bool           // something is mended that may be why items are retained (R3)

	// of the source that changes
	before             int // how many items it supplied
	lost               []*item[K, T]
	explicit, unlisted bool
}

func (m *Merger[K, T]) newChange(now time.Time) *change[K, T] {
	return &change[K, T]{now: now, keys: map[K]struct{}{}}
}

func (c *change[K, T]) begin(s *source[K, T]) {
	c.before, c.lost, c.explicit, c.unlisted = s.items, nil, false, false
}

// finish ends a change and returns the keys whose items changed.
func (m *Merger[K, T]) finish(c *change[K, T]) []K {
	if c.faultEnded {
		m.recheckRemovals(c.now)
	}
	return slices.Collect(maps.Keys(c.keys))
}

// Supply is an item and where it comes from.
type Supply[T any] struct {
	Source, Group string
	Item          T
	// Retained is why an item is used that its source does not supply any more; empty: it supplies it.
	Retained string
}

// Items lists all that is supplied for k, the one that is used first.
func (m *Merger[K, T]) Items(k K) []Supply[T] {
	list := m.items[k]
	out := make([]Supply[T], len(list))
	for n, i := range list {
		out[n] = Supply[T]{Source: i.group.source.Name, Group: i.group.name, Item: i.value, Retained: i.retained()}
	}
	return out
}
