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

// Config configures how a Merger merges and retains items.
type Config[K Key, T any] struct {
	// KeyOf returns the key of an item. Required.
	KeyOf func(T) K
	// Union means that all items of a key are used together, such as the instances of one host in
	// two registries. Lost items are then retained even if other sources supply the key, and
	// several items of one key are not a problem.
	Union bool
	// Settle is how long an item stays active after its last source removed it. Zero means that it
	// is removed at once.
	Settle time.Duration
	// MassRemoval is how long items stay after a source lost most of its items at once (R4). Zero
	// means until they return or AcceptRemovals is called.
	MassRemoval time.Duration
}

// SourceConfig is one source of a Merger.
type SourceConfig struct {
	// Name is Source.Name.
	Name string
	// Required means that serving waits until the source has sent content, now or before a restart.
	Required bool
}

// Merger holds the latest content of every group of every source, and what is retained of previous
// content. It is not safe for concurrent use. Callers pass the current time.
//
// Items with the same key are ordered by source (that of NewMerger), then by group name, then by
// position. The first is active. So the order of arrival does not matter.
type Merger[K Key, T any] struct {
	cfg     Config[K, T]
	sources map[string]*source[K, T]
	list    []*source[K, T] // those of NewMerger, in order

	items  map[K][]*item[K, T] // in order of precedence
	shared map[K]struct{}      // keys with several items

	nextRemoval time.Time            // time of the next removal check; zero if none
	changed     map[K]struct{}       // keys whose items changed in this call
	unsaved     map[groupID]struct{} // groups that changed since TakeChanged
}

// source is the state of one source.
type source[K Key, T any] struct {
	SourceConfig
	status SourceStatus
	rank   int // position in the list, or unlisted

	groups map[string]*group[K, T]
	items  int                       // number of items of all groups, without those that are retained
	faulty map[*group[K, T]]struct{} // groups that have problems or faults, or retain items

	delivered bool // the source sent content, perhaps before the restart
	dropped   bool // the source is unlisted, and its groups were removed
}

// unlisted is the rank of sources that are not in the list.
const unlisted = math.MaxInt

// NewMerger returns a merger of sources, in order of precedence. Names are unique. A source that
// has saved content and is not in the list is removed once all required sources have synced.
func NewMerger[K Key, T any](cfg Config[K, T], list []SourceConfig) *Merger[K, T] {
	m := &Merger[K, T]{
		cfg:     cfg,
		sources: map[string]*source[K, T]{},
		items:   map[K][]*item[K, T]{},
		shared:  map[K]struct{}{},
		changed: map[K]struct{}{},
		unsaved: map[groupID]struct{}{},
	}
	for rank, cfg := range list {
		s := m.source(cfg.Name)
		s.SourceConfig, s.rank = cfg, rank
		m.list = append(m.list, s)
	}
	return m
}

// source returns the source with a name. It adds one if there is none.
func (m *Merger[K, T]) source(name string) *source[K, T] {
	s := m.sources[name]
	if s == nil {
		s = &source[K, T]{rank: unlisted, groups: map[string]*group[K, T]{}, faulty: map[*group[K, T]]struct{}{}}
		s.Name = name
		m.sources[name] = s
	}
	return s
}

// Apply applies a batch and returns the keys whose items changed, in no order. It may include
// unchanged items. It ignores a batch of a source that is not in the list.
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
	s.status.Error, s.status.ErrorSince = "", time.Time{}
	m.applyGroups(s, b, now)
	s.status.Synced = s.status.Synced || b.Full
	return m.finish(now)
}

// applyGroups applies the groups of a batch.
func (m *Merger[K, T]) applyGroups(s *source[K, T], b Batch[T], now time.Time) {
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
	slices.SortFunc(lost, (*item[K, T]).compare) // the item with precedence is retained first
	for _, i := range lost {
		i.Removal = Removal{At: now, Settled: s.rank == unlisted, Mass: b.DataLost}
		m.retain(i, now)
	}
}

// finish drops unlisted sources and ends due retention. It returns the keys whose
// items changed.
func (m *Merger[K, T]) finish(now time.Time) []K {
	m.dropUnlisted(now)
	m.settle(now)
	out := slices.Collect(maps.Keys(m.changed))
	m.changed = map[K]struct{}{} // a map that was large stays slow to iterate
	return out
}

// dropUnlisted removes the groups of sources that are not in the list, once all required sources
// have synced (R5). It deletes these sources when nothing of them is retained.
func (m *Merger[K, T]) dropUnlisted(now time.Time) {
	waiting := slices.ContainsFunc(m.list, func(s *source[K, T]) bool { return s.Required && !s.status.Synced })
	// In reverse, so that of several sources the first one is used.
	for _, name := range slices.Backward(slices.Sorted(maps.Keys(m.sources))) {
		s := m.sources[name]
		if s.rank != unlisted {
			continue
		}
		if !s.dropped && !waiting {
			s.dropped = true
			m.applyGroups(s, Batch[T]{Full: true}, now)
		}
		if len(s.groups) == 0 {
			delete(m.sources, name)
			m.unsaved[groupID{name, deliveredGroup}] = struct{}{}
		}
	}
}

// item is one item of a group.
type item[K Key, T any] struct {
	SavedItem[T]
	key   K
	group *group[K, T]
	index int // position in the group
}

// compare orders the items of one key by precedence.
func (i *item[K, T]) compare(o *item[K, T]) int {
	a, b := i.group.source, o.group.source
	return cmp.Or(cmp.Compare(a.rank, b.rank), cmp.Compare(a.Name, b.Name), cmp.Compare(i.group.name, o.group.name),
		cmp.Compare(i.index, o.index))
}

// add indexes an item and ends the retention of items it replaces.
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

// remove removes an item from those of its key.
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

// Supply is an item with its source and group.
type Supply[T any] struct {
	Source, Group string
	Item          T
}

// Items returns all items for k, in order of precedence.
func (m *Merger[K, T]) Items(k K) []Supply[T] {
	var out []Supply[T]
	for _, i := range m.items[k] {
		out = append(out, Supply[T]{i.group.source.Name, i.group.name, i.Item})
	}
	return out
}
