package pmap_test

import (
	"maps"
	"math/rand/v2"
	"slices"
	"strconv"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/ashore-mesh/ashore/internal/pmap"
)

type key = pmap.String

func keyOf(n int) key { return key(rune('a'+n%26)) + key(rune('a'+n/26%26)) }

// After random edits, a map has the content of a plain Go map in the order of its keys. Its older
// versions are unchanged.
func TestAgainstModel(t *testing.T) {
	t.Parallel()
	rnd := rand.New(rand.NewPCG(1, 2))
	for range 50 {
		var m pmap.Map[key, int]
		model := map[key]int{}
		type version struct {
			m     pmap.Map[key, int]
			model map[key]int
		}
		var versions []version
		for range 200 {
			k, v := keyOf(rnd.IntN(300)), rnd.IntN(4)
			if rnd.IntN(3) == 0 {
				m = m.Without(k)
				delete(model, k)
			} else {
				m = m.With(k, v)
				model[k] = v
			}
			versions = append(versions, version{m, maps.Clone(model)})
		}
		for _, v := range versions {
			check(t, v.m, v.model)
		}
		checkDiff(t, versions[20].m, versions[180].m, versions[20].model, versions[180].model)
		checkDiff(t, versions[180].m, versions[20].m, versions[180].model, versions[20].model)
	}
}

func check(t *testing.T, m pmap.Map[key, int], model map[key]int) {
	t.Helper()
	if m.Len() != len(model) {
		t.Fatalf("Len: got %d, want %d", m.Len(), len(model))
	}
	var keys []key
	for k, v := range m.All() {
		keys = append(keys, k)
		if want, ok := model[k]; !ok || v != want {
			t.Fatalf("All yields %q=%d, want %d (present: %v)", k, v, want, ok)
		}
		if got, ok := m.Get(k); !ok || got != v {
			t.Fatalf("Get(%q): got %d, %v", k, got, ok)
		}
	}
	if !slices.IsSorted(keys) {
		t.Fatalf("All is not in order: %q", keys)
	}
	if len(keys) > 3 {
		var from []key
		for k := range m.From(keys[2]) {
			from = append(from, k)
		}
		if d := cmp.Diff(keys[2:], from); d != "" {
			t.Fatalf("From(%q) (-want +got):\n%s", keys[2], d)
		}
	}
}

func checkDiff(t *testing.T, old, now pmap.Map[key, int], oldModel, nowModel map[key]int) {
	t.Helper()
	got := maps.Clone(oldModel)
	for ch := range now.Diff(old) {
		if v, ok := oldModel[ch.Key]; ok != ch.HadOld || v != ch.Old {
			t.Fatalf("Diff says %q was %d (%v), it was %d (%v)", ch.Key, ch.Old, ch.HadOld, v, ok)
		}
		if ch.HadOld && ch.HasNew && ch.Old == ch.New {
			t.Fatalf("Diff yields %q, which is the same", ch.Key)
		}
		if ch.HasNew {
			got[ch.Key] = ch.New
		} else {
			delete(got, ch.Key)
		}
	}
	if d := cmp.Diff(nowModel, got); d != "" {
		t.Fatalf("the old map with the differences applied (-want +got):\n%s", d)
	}
}

// Setting what is there, or removing what is not, gives the very same map: the pointer is the
// version.
func TestNoChangeKeepsIdentity(t *testing.T) {
	t.Parallel()
	m := pmap.Map[key, int]{}.With("a", 1).With("b", 2)
	if m.With("a", 1) != m {
		t.Error("With an equal value gives another map")
	}
	if m.Without("c") != m {
		t.Error("Without an absent key gives another map")
	}
	if m.With("a", 2) == m {
		t.Error("With another value gives the same map")
	}
}

// The cost of Diff is that of the differences.
func TestDiffSkipsShared(t *testing.T) {
	t.Parallel()
	var m pmap.Map[counted, int]
	for i := range 4096 {
		m = m.With(counted{n: i}, i)
	}
	comparisons = 0
	changes := 0
	for range m.With(counted{n: 7}, -1).Diff(m) {
		changes++
	}
	if changes != 1 || comparisons > 400 {
		t.Errorf("got %d changes with %d comparisons of 4096 keys", changes, comparisons)
	}
}

// counted counts comparisons; only TestDiffSkipsShared uses it.
type counted struct{ n int }

var comparisons int

func (c counted) Compare(o counted) int {
	comparisons++
	return c.n - o.n
}

func BenchmarkWith(b *testing.B) {
	for _, size := range []int{1_000, 10_000, 100_000} {
		b.Run(strconv.Itoa(size), func(b *testing.B) {
			var m pmap.Map[counted, int]
			for i := range size {
				m = m.With(counted{n: i}, i)
			}
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				m.With(counted{n: i % size}, -1)
			}
		})
	}
}
