package feed

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

// doubted is all that Doubts is about.
func doubted(m *Merger[string, string], sources, groups []string) string {
	out := fmt.Sprint(m.Refused(), m.Faults(), m.Unseen())
	out += fmt.Sprint(m.Unread())
	waiting := m.Waiting()
	slices.Sort(waiting)
	out += fmt.Sprint(waiting)
	seen := m.Seen()
	for _, s := range sources {
		out += fmt.Sprint(m.Has(s))
		for _, g := range groups {
			id := GroupID{s, g}
			out += fmt.Sprint(m.Faulty(id), seen(id), m.StandsIn(id))
		}
	}
	return out
}

// Whatever sources say, come and go: what is in doubt is other only where Doubts is, and Unseen is what is to be seen of the groups.
func TestLawOfDoubts(t *testing.T) {
	t.Parallel()
	at, sources, groups := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC), []string{"one", "two", "three"}, []string{"a", "b", "c"}
	for seed := range uint64(300) {
		r := rand.New(rand.NewPCG(seed, 3))
		m := NewMerger(sources[:2], func(s string) string { return s })
		was, number := doubted(m, sources, groups), m.Doubts()
		for step := range 60 {
			change(r, m, sources, groups, at.Add(time.Duration(step)*time.Second))
			is, now := doubted(m, sources, groups), m.Doubts()
			if is != was && now == number {
				t.Fatalf("seed %d, step %d: what is in doubt is other, and Doubts is the same:\n%s\n%s", seed, step, was, is)
			}
			was, number = is, now
			for name, s := range m.sources {
				unseen := !s.synced || s.anew || s.stands.Error != ""
				for id, g := range m.groups {
					unseen = unseen || id.Source == name && g.unseen()
				}
				if got := slices.Contains(m.Unseen(), name); got != unseen {
					t.Fatalf("seed %d, step %d: %s is unseen: %v, want %v", seed, step, name, got, unseen)
				}
			}
		}
	}
}

// change has something happen to what a merger has.
func change(r *rand.Rand, m *Merger[string, string], sources, groups []string, now time.Time) {
	name := sources[r.IntN(len(sources))]
	what := r.IntN(10)
	switch {
	case what == 0:
		list := slices.Clone(sources)
		r.Shuffle(len(list), func(i, j int) { list[i], list[j] = list[j], list[i] })
		m.Arrange(list[:1+r.IntN(len(list))])
	case what == 1:
		m.Anew([]string{name})
	case !m.Has(name):
	case what == 2:
		m.Apply(Batch[string]{Source: name, Standing: &Standing{Error: []string{"", "it is away"}[r.IntN(2)]}}, now)
	default:
		b := Batch[string]{Source: name, Full: r.IntN(4) == 0}
		for _, g := range groups {
			if r.IntN(2) == 0 {
				b.Updates = append(b.Updates, content(r, g, now))
			}
		}
		m.Apply(b, now)
	}
}

// content is something that a source may say of a group, clean for the most part.
func content(r *rand.Rand, name string, now time.Time) Update[string] {
	u := Update[string]{Group: name, Kept: r.IntN(8) == 0}
	if r.IntN(2) == 0 {
		u.Edited = now
	}
	for _, k := range []string{name, "x"} {
		if r.IntN(3) == 0 {
			u.Items = append(u.Items, k)
		}
	}
	if r.IntN(6) == 0 {
		u.Problems = []Problem{{Severity: Error, Object: name, Unread: r.IntN(2) == 0, Away: r.IntN(2) == 0}}
	}
	return u
}

// What is wrong with nothing, of a source that was seen, is no doubt, and neither is what that has for the first time.
func TestNoDoubt(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	m := NewMerger([]string{"one", "away"}, func(s string) string { return s })
	m.Apply(Batch[string]{Source: "one", Full: true, Updates: []Update[string]{{Group: "a", Items: []string{"a"}, Edited: at}}}, at)
	number := m.Doubts()
	m.Apply(Batch[string]{Source: "one", Updates: []Update[string]{
		{Group: "a", Items: []string{"a"}, Edited: at.Add(1)}, {Group: "b", Items: []string{"b"}, Edited: at}, {Group: "c"},
	}}, at)
	m.Apply(Batch[string]{Source: "one", Updates: []Update[string]{{Group: "b"}}}, at)
	m.Apply(Batch[string]{Source: "away", Standing: &Standing{Error: "it is away"}}, at)
	if got := m.Doubts(); got != number {
		t.Errorf("doubts are %d, and were %d", got, number)
	}
}
