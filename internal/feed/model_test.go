package feed

import (
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"
)

// model is a Merger written naively: it has no indexes and no counters, and looks at everything
// each time.
type model struct {
	cfg      Config[testKey, testItem]
	now      time.Time
	list     []SourceConfig
	sources  map[string]*modelSource
	removals []*modelRemoval
}

type modelSource struct {
	groups map[string]*modelGroup
	synced bool
}

type modelGroup struct {
	GroupState
	items []modelItem
}

type modelItem struct {
	item  testItem
	stale bool
}

type modelRemoval struct {
	source, group string
	item          testItem
	at, due       time.Time
	settled, mass bool
}

func (m *model) source(name string) *modelSource {
	if m.sources[name] == nil {
		m.sources[name] = &modelSource{groups: map[string]*modelGroup{}}
	}
	return m.sources[name]
}

func (m *model) listed(name string) bool {
	return slices.ContainsFunc(m.list, func(c SourceConfig) bool { return c.Name == name })
}

// order is all sources, the one that is used first.
func (m *model) order() []string {
	var out []string
	for _, c := range m.list {
		out = append(out, c.Name)
	}
	for _, name := range slices.Sorted(maps.Keys(m.sources)) {
		if !m.listed(name) {
			out = append(out, name)
		}
	}
	return out
}

// supplies are the items of a key in order of use, as "group source item", those retained with a
// "~".
func (m *model) supplies(k testKey) []string {
	var out []string
	for _, name := range m.order() {
		s := m.source(name)
		groups := map[string]bool{}
		for g := range s.groups {
			groups[g] = true
		}
		for _, r := range m.removals {
			groups[r.group] = groups[r.group] || r.source == name
		}
		for _, group := range slices.Sorted(maps.Keys(groups)) {
			if g := s.groups[group]; g != nil {
				for _, i := range g.items {
					if i.item.key() == k {
						out = append(out, fmt.Sprint(name, " ", group, " ", i.item,
							map[bool]string{true: "~"}[i.stale]))
					}
				}
			}
			for _, r := range m.removals {
				if r.source == name && r.group == group && r.item.key() == k {
					out = append(out, fmt.Sprint(name, " ", group, " ", r.item, "~"))
				}
			}
		}
	}
	return out
}

// live says that a source supplies a key; an empty source is any.
func (m *model) live(k testKey, source string) bool {
	for name, s := range m.sources {
		for _, g := range s.groups {
			for _, i := range g.items {
				if i.item.key() == k && (source == "" || source == name) {
					return true
				}
			}
		}
	}
	return false
}

// endSupplied ends removals of items that are supplied again.
func (m *model) endSupplied() {
	m.removals = slices.DeleteFunc(m.removals, func(r *modelRemoval) bool {
		return m.live(r.item.key(), map[bool]string{true: r.source}[m.cfg.Union])
	})
}

// setSources restarts with other sources.
func (m *model) setSources(list []SourceConfig) {
	m.list = list
	for _, c := range list {
		m.source(c.Name)
	}
	m.restart()
}

func (m *model) apply(b Batch[testItem]) {
	if !m.listed(b.Source) || b.Down != nil {
		return
	}
	m.endSupplied()
	m.take(b)
	m.finish()
}

func (m *model) take(b Batch[testItem]) {
	s := m.source(b.Source)
	updates := slices.Clone(b.Updates)
	if b.Full {
		s.synced = true
		for name := range s.groups {
			if !slices.ContainsFunc(b.Updates, func(u Update[testItem]) bool { return u.Group == name }) {
				updates = append(updates, Update[testItem]{Group: name})
			}
		}
	}
	slices.SortFunc(updates, func(a, b Update[testItem]) int { return strings.Compare(a.Group, b.Group) })
	var lost []*modelRemoval
	for _, u := range updates {
		g := s.groups[u.Group]
		if g == nil {
			g = &modelGroup{}
		}
		next := &modelGroup{GroupState: GroupState{Invalid: u.Invalid, HasError: Errors(u.Problems) > 0}}
		if u.Unreadable {
			next.Unreadable, next.Invalid = g.Unreadable, g.Invalid
			if next.Unreadable.IsZero() {
				next.Unreadable = m.now
			}
		}
		if !u.Unreadable {
			for _, i := range u.Items {
				next.items = append(next.items, modelItem{item: i})
			}
		}
		for _, i := range g.items {
			k := i.item.key()
			switch has := slices.ContainsFunc(u.Items, func(o testItem) bool { return o.key() == k }); {
			case u.Unreadable, !has && slices.Contains(u.Invalid, k.String()):
				next.items = append(next.items, modelItem{i.item, true})
			case !has:
				lost = append(lost, &modelRemoval{
					source: b.Source, group: u.Group, item: i.item,
					at: m.now, due: m.now.Add(m.cfg.Settle), settled: !m.listed(b.Source),
				})
			}
		}
		s.groups[u.Group] = next
		if len(next.items) == 0 && next.ok() {
			delete(s.groups, u.Group)
		}
	}
	m.endSupplied()
	for _, r := range lost {
		k := r.item.key()
		replaced := slices.ContainsFunc(m.removals, func(o *modelRemoval) bool {
			return o.item.key() == k && (!m.cfg.Union || o.source == r.source && o.group == r.group)
		})
		if !b.Explicit && !replaced && !m.live(k, map[bool]string{true: r.source}[m.cfg.Union]) {
			m.removals = append(m.removals, r)
		}
	}
}

func (m *model) finish() {
	if !slices.ContainsFunc(m.list, func(c SourceConfig) bool { return c.Required && !m.source(c.Name).synced }) {
		for _, name := range slices.Backward(slices.Sorted(maps.Keys(m.sources))) {
			if !m.listed(name) && !m.source(name).synced {
				m.take(Batch[testItem]{Source: name, Full: true})
			}
		}
	}
	m.settle()
}

func (m *model) settle() {
	for name, s := range m.sources {
		supplied := 0
		for _, g := range s.groups {
			supplied += len(g.items)
		}
		var pending []*modelRemoval
		due := false
		for _, r := range m.removals {
			if r.source == name && !r.settled {
				pending, due = append(pending, r), due || !r.due.After(m.now)
			}
		}
		if due && (supplied == 0 || len(pending) >= 10 && len(pending) > supplied) {
			for _, r := range pending {
				r.settled, r.mass, r.due = true, true, m.massEnd(r)
			}
		}
	}
	m.removals = slices.DeleteFunc(m.removals, func(r *modelRemoval) bool {
		if r.due.IsZero() || r.due.After(m.now) {
			return false
		}
		r.settled = true
		if r.mass || !m.hasReason(r) {
			return true
		}
		r.due = m.now.Add(m.cfg.Settle)
		return false
	})
}

func (m *model) massEnd(r *modelRemoval) time.Time {
	if m.cfg.MassRemoval == 0 {
		return time.Time{}
	}
	return r.at.Add(m.cfg.Settle + m.cfg.MassRemoval)
}

// hasReason is R3.
func (m *model) hasReason(r *modelRemoval) bool {
	if m.cfg.Settle == 0 {
		return false
	}
	for name, s := range m.sources {
		for group, g := range s.groups {
			broke := g.Unreadable
			switch {
			case slices.Contains(g.Invalid, r.item.key().String()),
				name == r.source && group == r.group && g.HasError,
				!broke.IsZero() && !broke.Before(r.at.Add(-10*time.Minute)) && !broke.After(r.at.Add(m.cfg.Settle)):
				return true
			}
		}
	}
	return false
}

func (m *model) wait(end time.Time) {
	for {
		next := end.Add(1)
		for _, r := range m.removals {
			if !r.due.IsZero() && r.due.Before(next) {
				next = r.due
			}
		}
		if next.After(end) {
			break
		}
		if next.After(m.now) {
			m.now = next
		}
		m.finish()
	}
	m.now = end
}

func (m *model) restart() {
	for _, s := range m.sources {
		s.synced = false
	}
	m.endSupplied()
	for _, r := range m.removals {
		if r.due = m.now.Add(m.cfg.Settle); r.mass {
			r.due = m.massEnd(r)
		}
	}
	m.finish()
}

func (m *model) accept(source string) {
	if s := m.sources[source]; s != nil && !m.listed(source) {
		m.take(Batch[testItem]{Source: source, Full: true, Explicit: true})
	}
	m.removals = slices.DeleteFunc(m.removals, func(r *modelRemoval) bool { return r.source == source })
	m.finish()
}

// history drives a merger and a model through the same random events.
type history struct {
	*world
	model   *model
	rand    *rand.Rand
	version int
	log     []string
}

func (h *history) pick(n int) bool { return h.rand.IntN(n) == 0 }

func (h *history) randomSources() []SourceConfig {
	var out []SourceConfig
	for _, n := range h.rand.Perm(3)[:1+h.rand.IntN(3)] {
		out = append(out, SourceConfig{Name: fmt.Sprint("s", n), Required: h.pick(2)})
	}
	return out
}

func (h *history) randomUpdate(group string) Update[testItem] {
	u := Update[testItem]{Group: group}
	size := []int{0, 1, 3, 12}[h.rand.IntN(4)]
	for range size {
		h.version++
		k := fmt.Sprintf("k%02d", h.rand.IntN(14))
		if h.pick(8) {
			u.Invalid = append(u.Invalid, testKey(k).String())
			u.Problems = append(u.Problems, Problem{Severity: Error, Object: testKey(k).String(), Text: "invalid"})
			continue
		}
		u.Items = append(u.Items, testItem(fmt.Sprint(k, "=", h.version)))
	}
	if h.pick(6) {
		u.Problems = append(u.Problems, Problem{Severity: Error, Text: "odd"})
	}
	if h.pick(6) {
		u.Unreadable, u.Items, u.Invalid = true, nil, nil
		u.Problems = []Problem{{Severity: Error, Text: "unreadable"}}
	}
	return u
}

func (h *history) randomBatch() Batch[testItem] {
	b := Batch[testItem]{Source: fmt.Sprint("s", h.rand.IntN(3)), Full: h.pick(3), Explicit: h.pick(5)}
	if h.pick(8) {
		return Batch[testItem]{Source: b.Source, Down: errors.New("down")}
	}
	for _, group := range []string{"a", "b", "c"} {
		if h.pick(2) {
			b.Updates = append(b.Updates, h.randomUpdate(group))
		}
	}
	return b
}

// step does one random event.
func (h *history) step() {
	const s = time.Second
	waits := []time.Duration{0, s / 2, s, 2 * s, 5 * s, 6 * time.Minute, 11 * time.Minute, time.Hour}
	switch h.rand.IntN(16) {
	case 0:
		list := h.randomSources()
		h.log = append(h.log, fmt.Sprintf("sources %+v", list))
		h.setSources(list...)
		h.model.setSources(list)
	case 1:
		h.log = append(h.log, "restart")
		h.restart()
		h.model.restart()
	case 2:
		source := fmt.Sprint("s", h.rand.IntN(3))
		h.log = append(h.log, "accept "+source)
		h.note(h.m.AcceptRemovals(source, h.now))
		h.model.accept(source)
	case 3, 4, 5, 6, 7:
		d := waits[h.rand.IntN(len(waits))]
		h.log = append(h.log, fmt.Sprintf("wait %v", d))
		h.wait(d)
		h.model.wait(h.now)
	default:
		b := h.randomBatch()
		h.log = append(h.log, fmt.Sprintf("%s full=%v explicit=%v down=%v %+v", b.Source, b.Full, b.Explicit, b.Down,
			b.Updates))
		h.apply(b)
		h.model.apply(b)
	}
}

// state is all items by key, as the merger has them.
func (h *history) state() map[testKey][]string {
	out := map[testKey][]string{}
	for n := range 14 {
		k := testKey(fmt.Sprintf("k%02d", n))
		for n, s := range h.m.Items(k) {
			out[k] = append(out[k], fmt.Sprint(s.Source, " ", s.Group, " ", s.Item, retainedMark(h.m, k, n)))
		}
	}
	return out
}

// check compares the merger with the model. It returns what differs.
func (h *history) check(before, after map[testKey][]string, restarted bool) string {
	for n := range 14 {
		k := testKey(fmt.Sprintf("k%02d", n))
		if want := h.model.supplies(k); !slices.Equal(after[k], want) {
			return fmt.Sprintf("%s is %q, want %q", k, after[k], want)
		}
		if !h.changed[k] && !restarted && !slices.Equal(plain(before[k]), plain(after[k])) {
			return fmt.Sprintf("%s changed from %q to %q, but is not among the changed keys", k, before[k], after[k])
		}
	}
	for _, st := range h.m.Status() {
		var want SourceStatus
		for _, g := range h.model.source(st.Name).groups {
			want.Items += len(g.items)
			if slices.ContainsFunc(g.items, func(i modelItem) bool { return i.stale }) {
				want.Stale++
			}
		}
		for _, r := range h.model.removals {
			if r.source == st.Name {
				want.Retained++
			}
		}
		if st.Items != want.Items || st.Stale != want.Stale || st.Retained != want.Retained {
			return fmt.Sprintf("status is %+v, want %d items, %d stale, %d retained", st, want.Items, want.Stale,
				want.Retained)
		}
	}
	return ""
}

// plain is items without the marks of retained ones: a key does not change because its item is
// retained.
func plain(items []string) []string {
	out := make([]string, len(items))
	for n, i := range items {
		out[n] = strings.TrimSuffix(i, "~")
	}
	return out
}

func runHistory(t *testing.T, seed uint64, steps int) {
	cfg := objectConfig
	if seed%4 == 0 {
		cfg = serviceConfig
	}
	h := &history{
		world: newWorld(t, cfg, named("s0", "s1", "s2")...), rand: rand.New(rand.NewPCG(seed, 0)),
		model: &model{cfg: cfg, now: epoch, sources: map[string]*modelSource{}},
	}
	h.model.setSources(h.sources)
	before := h.state()
	for range steps {
		clear(h.changed)
		h.step()
		after := h.state()
		last := h.log[len(h.log)-1]
		restarted := last == "restart" || strings.HasPrefix(last, "sources")
		if diff := h.check(before, after, restarted); diff != "" {
			t.Fatalf("seed %d, step %d: %s\n%s", seed, len(h.log), diff,
				strings.Join(h.log[max(0, len(h.log)-25):], "\n"))
		}
		before = after
	}
}

func TestModel(t *testing.T) {
	t.Parallel()
	for seed := range uint64(100) {
		runHistory(t, seed, 100)
	}
}

func FuzzModel(f *testing.F) {
	f.Add(uint64(1))
	f.Fuzz(func(t *testing.T, seed uint64) { runHistory(t, seed, 200) })
}
