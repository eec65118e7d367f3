package feed

import (
	"cmp"
	"fmt"
	"maps"
	"math"
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
	// Union means that all items of a key are used together, such as one host's instances in two
	// registries. What a source lost is then retained beside what others supply, and several items
	// of one key are no problem.
	Union bool
	// Settle is how long an item that no source supplies any more stays (R3). Zero: it is removed
	// at once.
	Settle time.Duration
	// MassRemoval is how long items stay that a source lost together with most of its others (R4).
	// Zero: until they return or AcceptRemovals is called.
	MassRemoval time.Duration
}

// SourceConfig is one source of a Merger.
type SourceConfig struct {
	// Name is Source.Name.
	Name string
	// Required means that serving waits until the source has sent content, also before the restart.
	Required bool
	// MaxAge is how long items are used while their source is down. Zero: without limit. After a
	// restart it starts again.
	MaxAge time.Duration
	// DropStale removes the items of the source after MaxAge. Otherwise they stay, and a problem
	// says so.
	DropStale bool
}

// Merger holds the latest content of every group of every source, and what is retained of former
// content. It has no clock and no goroutine: one goroutine owns it, and passes the time.
//
// Of several items with one key the first source of the list is used, within a source the first
// group by name, and within a group the first item. So the order of arrival does not matter.
type Merger[K Key, T any] struct {
	cfg     Config[K, T]
	sources map[string]*source[K, T]
	list    []*source[K, T] // those of SetSources, in their order

	items  map[K][]*item[K, T] // in order of use
	shared map[K]struct{}      // keys with several items

	nextRemoval time.Time            // no removal is due before; zero: none is
	changed     map[K]struct{}       // keys whose items changed in this call
	unsaved     map[groupID]struct{} // groups that changed since TakeChanged
}

// source is what is known of one source.
type source[K Key, T any] struct {
	SourceConfig
	status SourceStatus
	rank   int // place in the list; unlisted: it is not in the list

	groups map[string]*group[K, T]
	faulty map[*group[K, T]]struct{} // groups that have problems or faults, or retain items

	delivered bool // it sent content, perhaps before the restart
	expired   bool // its items are older than MaxAge
}

// unlisted is the rank of sources that are not in the list.
const unlisted = math.MaxInt

// NewMerger returns a merger without sources.
func NewMerger[K Key, T any](cfg Config[K, T]) *Merger[K, T] {
	return &Merger[K, T]{
		cfg:     cfg,
		sources: map[string]*source[K, T]{},
		items:   map[K][]*item[K, T]{},
		shared:  map[K]struct{}{},
		changed: map[K]struct{}{},
		unsaved: map[groupID]struct{}{},
	}
}

// SetSources replaces the list of sources, most important first. Groups of a source that is not in
// the list any more are removed once all required sources have delivered, as R3 says. It returns
// the keys whose items changed, in no order.
func (m *Merger[K, T]) SetSources(list []SourceConfig, now time.Time) (changed []K) {
	for _, s := range m.sources {
		m.setExpired(s, false)
		s.status.Synced = s.status.Synced && s.rank != unlisted
		s.rank = unlisted
	}
	m.list = nil
	for _, cfg := range list {
		if s := m.source(cfg.Name); s.rank == unlisted {
			s.SourceConfig, s.rank = cfg, len(m.list)
			m.list = append(m.list, s)
		}
	}
	for _, s := range m.sources {
		if s.rank == unlisted { // if it returns, its groups are like those from before a restart
			s.status.Synced, s.status.Error = false, ""
		}
	}
	for k := range m.shared {
		if list := m.items[k]; !slices.IsSortedFunc(list, (*item[K, T]).compare) {
			slices.SortFunc(list, (*item[K, T]).compare)
			m.changed[k] = struct{}{}
		}
	}
	return m.finish(now)
}

// source returns the source of a name, which it makes when there is none.
func (m *Merger[K, T]) source(name string) *source[K, T] {
	s := m.sources[name]
	if s == nil {
		s = &source[K, T]{rank: unlisted, groups: map[string]*group[K, T]{}, faulty: map[*group[K, T]]struct{}{}}
		s.Name = name
		m.sources[name] = s
	}
	return s
}

// Apply takes in a batch and returns the keys whose items changed, in no order. It may return keys
// whose items are equal to those before. A batch of a source that is not in the list is ignored.
func (m *Merger[K, T]) Apply(b Batch[T], now time.Time) (changed []K) {
	s := m.sources[b.Source]
	if s == nil || s.rank == unlisted {
		return nil
	}
	s.status.Reading = b.Reading
	if b.Down != nil {
		if s.status.Error == "" {
			s.status.ErrorSince = now
		}
		s.status.Error = b.Down.Error()
		return nil
	}
	if s.status.Error != "" {
		s.status.LastError, s.status.LastErrorEnd = s.status.Error, now
		s.status.Error, s.status.ErrorSince = "", time.Time{}
	}
	m.setExpired(s, false)
	m.take(s, b, now)
	return m.finish(now)
}

// take takes in the groups of a batch.
func (m *Merger[K, T]) take(s *source[K, T], b Batch[T], now time.Time) {
	var lost []*item[K, T]
	named := make(map[string]struct{}, len(b.Updates))
	for _, u := range b.Updates {
		named[u.Group] = struct{}{}
		lost = append(lost, m.replace(s, u, now)...)
	}
	if b.Full {
		for name := range s.groups {
			if _, ok := named[name]; !ok {
				lost = append(lost, m.replace(s, Update[T]{Group: name}, now)...)
			}
		}
		s.status.Synced = true
	}
	if b.Full || len(b.Updates) > 0 {
		s.status.LastUpdate = now
		if !s.delivered {
			s.delivered = true
			m.unsaved[groupID{s.Name, deliveredGroup}] = struct{}{}
		}
	}
	if b.Explicit {
		return
	}
	slices.SortFunc(lost, (*item[K, T]).compare) // of several items of one key the one that was used is retained
	for _, i := range lost {
		i.Removal = Removal{At: now, Settled: s.rank == unlisted}
		m.retain(i, now)
	}
}

// finish does what follows from a change, and returns the keys whose items changed.
func (m *Merger[K, T]) finish(now time.Time) []K {
	for _, s := range m.list {
		if at := s.expiry(); !at.IsZero() && !now.Before(at) {
			m.setExpired(s, true)
		}
	}
	waiting := slices.ContainsFunc(m.list, func(s *source[K, T]) bool { return s.Required && !s.status.Synced })
	for _, name := range slices.Backward(slices.Sorted(maps.Keys(m.sources))) { // the one that is used first comes last
		s := m.sources[name]
		if s.rank == unlisted && !s.status.Synced && !waiting {
			m.take(s, Batch[T]{Full: true}, now)
		}
		if s.rank == unlisted && len(s.groups) == 0 {
			delete(m.sources, name)
			m.unsaved[groupID{name, deliveredGroup}] = struct{}{}
		}
	}
	m.settle(now)
	out := slices.Collect(maps.Keys(m.changed))
	clear(m.changed)
	return out
}

// item is one item of a group.
type item[K Key, T any] struct {
	SavedItem[T]
	key   K
	group *group[K, T]
	index int // within the group
}

// compare orders items of one key by use.
func (i *item[K, T]) compare(o *item[K, T]) int {
	a, b := i.group.source, o.group.source
	return cmp.Or(cmp.Compare(a.rank, b.rank), cmp.Compare(a.Name, b.Name), cmp.Compare(i.group.name, o.group.name),
		cmp.Compare(i.index, o.index))
}

// add puts an item among those of its key. It ends the removals of those that it replaces.
func (m *Merger[K, T]) add(i *item[K, T]) {
	for _, o := range slices.Clone(m.items[i.key]) {
		if o.lost() && m.replaces(i, o) {
			m.endRemoval(o)
		}
	}
	list := m.items[i.key]
	at, _ := slices.BinarySearchFunc(list, i, (*item[K, T]).compare)
	m.setItems(i.key, slices.Insert(list, at, i))
}

// remove takes an item out of those of its key.
func (m *Merger[K, T]) remove(i *item[K, T]) {
	list := m.items[i.key]
	if at := slices.Index(list, i); at >= 0 {
		m.setItems(i.key, slices.Delete(list, at, at+1))
	}
}

func (m *Merger[K, T]) setItems(k K, list []*item[K, T]) {
	m.items[k] = list
	if len(list) == 0 {
		delete(m.items, k)
	}
	setMember(m.shared, k, len(list) > 1)
	m.changed[k] = struct{}{}
}

func setMember[K comparable](set map[K]struct{}, k K, member bool) {
	if member {
		set[k] = struct{}{}
	} else {
		delete(set, k)
	}
}

// Supply is an item and where it comes from.
type Supply[T any] struct {
	Source, Group string
	Item          T
}

// Items lists all that is supplied for k, the one that is used first.
func (m *Merger[K, T]) Items(k K) []Supply[T] {
	var out []Supply[T]
	for _, i := range m.items[k] {
		if s := i.group.source; !s.dropped() {
			out = append(out, Supply[T]{s.Name, i.group.name, i.Item})
		}
	}
	return out
}
