package feed_test

import (
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/ashore-mesh/ashore/internal/feed"
)

// item is a key and what was said of it.
type item struct{ key, text string }

func merger() *feed.Merger[string, item] {
	return feed.NewMerger([]string{"files", "store"}, func(i item) string { return i.key })
}

func update(group string, items ...item) feed.Update[item] {
	return feed.Update[item]{Group: group, Items: items}
}

func TestMerger(t *testing.T) {
	t.Parallel()
	type step struct {
		batch   feed.Batch[item]
		touched []string
	}
	tests := map[string]struct {
		steps []step
		want  map[string][]item
	}{
		"a group is replaced whole": {
			steps: []step{
				{feed.Batch[item]{Source: "files", Full: true, Updates: []feed.Update[item]{update("f", item{"a", "1"}, item{"b", "1"})}}, []string{"a", "b"}},
				{feed.Batch[item]{Source: "files", Updates: []feed.Update[item]{update("f", item{"b", "2"}, item{"c", "2"})}}, []string{"a", "b", "c"}},
			},
			want: map[string][]item{"a": nil, "b": {{"b", "2"}}, "c": {{"c", "2"}}},
		},
		"an empty group is gone": {
			steps: []step{
				{feed.Batch[item]{Source: "files", Full: true, Updates: []feed.Update[item]{update("f", item{"a", "1"})}}, []string{"a"}},
				{feed.Batch[item]{Source: "files", Updates: []feed.Update[item]{update("f")}}, []string{"a"}},
			},
			want: map[string][]item{"a": nil},
		},
		"a full batch removes groups of its source that it does not name, and no others": {
			steps: []step{
				{feed.Batch[item]{Source: "files", Full: true, Updates: []feed.Update[item]{update("f", item{"a", "1"}), update("g", item{"b", "1"})}}, []string{"a", "b"}},
				{feed.Batch[item]{Source: "store", Full: true, Updates: []feed.Update[item]{update("f", item{"c", "1"})}}, []string{"c"}},
				{feed.Batch[item]{Source: "files", Full: true, Updates: []feed.Update[item]{update("g", item{"b", "2"})}}, []string{"a", "b"}},
			},
			want: map[string][]item{"a": nil, "b": {{"b", "2"}}, "c": {{"c", "1"}}},
		},
		"the source that is named first counts, whoever came first": {
			steps: []step{
				{feed.Batch[item]{Source: "store", Full: true, Updates: []feed.Update[item]{update("s", item{"a", "store"})}}, []string{"a"}},
				{feed.Batch[item]{Source: "files", Full: true, Updates: []feed.Update[item]{update("f", item{"a", "files"})}}, []string{"a"}},
			},
			want: map[string][]item{"a": {{"a", "files"}, {"a", "store"}}},
		},
		"within a group the item that stands first counts": {
			steps: []step{
				{feed.Batch[item]{Source: "files", Full: true, Updates: []feed.Update[item]{update("f", item{"a", "1"}, item{"a", "2"}, item{"a", "3"})}}, []string{"a"}},
				{feed.Batch[item]{Source: "store", Full: true, Updates: []feed.Update[item]{update("s", item{"a", "store"})}}, []string{"a"}},
			},
			want: map[string][]item{"a": {{"a", "1"}, {"a", "2"}, {"a", "3"}, {"a", "store"}}},
		},
		"within a source the group that was there first counts, and the other takes over": {
			steps: []step{
				{feed.Batch[item]{Source: "files", Full: true, Updates: []feed.Update[item]{update("z", item{"a", "z"})}}, []string{"a"}},
				{feed.Batch[item]{Source: "files", Updates: []feed.Update[item]{update("b", item{"a", "b"})}}, []string{"a"}},
				{feed.Batch[item]{Source: "files", Updates: []feed.Update[item]{update("z")}}, []string{"a"}},
			},
			want: map[string][]item{"a": {{"a", "b"}}},
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := merger()
			for i, s := range tc.steps {
				touched := m.Apply(s.batch, time.Time{})
				slices.Sort(touched)
				if d := cmp.Diff(s.touched, touched); d != "" {
					t.Errorf("step %d touched (-want +got):\n%s", i, d)
				}
			}
			for k, want := range tc.want {
				if got := m.Items(k); !slices.Equal(got, want) {
					t.Errorf("Items(%q): got %v, want %v", k, got, want)
				}
			}
		})
	}
}

// A merger is synced when every source has delivered a full batch, even an empty one.
func TestMergerSynced(t *testing.T) {
	t.Parallel()
	m := merger()
	m.Apply(feed.Batch[item]{Source: "files", Full: true}, time.Time{})
	m.Apply(feed.Batch[item]{Source: "store", Updates: []feed.Update[item]{update("s", item{"a", "1"})}}, time.Time{})
	if m.Synced() {
		t.Error("synced, and the store has not delivered its first state")
	}
	m.Apply(feed.Batch[item]{Source: "store", Full: true}, time.Time{})
	if !m.Synced() {
		t.Error("not synced, and all have delivered")
	}
}

// Problems stay with their group, are replaced with it, and clashes are told of.
func TestMergerProblems(t *testing.T) {
	t.Parallel()
	m := merger()
	u := update("f", item{"a", "files"})
	u.Problems = []feed.Problem{{Text: "broken", File: "f", Line: 3}}
	m.Apply(feed.Batch[item]{Source: "files", Full: true, Updates: []feed.Update[item]{u}}, time.Time{})
	m.Apply(feed.Batch[item]{Source: "store", Full: true, Updates: []feed.Update[item]{update("s", item{"a", "store"})}}, time.Time{})
	clash := func(counts, other item) feed.Problem {
		return feed.Problem{Source: "clash", Text: counts.text + " over " + other.text}
	}
	want := []feed.Problem{{Source: "clash", Text: "files over store"}, {Source: "files", Text: "broken", File: "f", Line: 3}}
	if d := cmp.Diff(want, m.Problems(clash)); d != "" {
		t.Errorf("problems (-want +got):\n%s", d)
	}
	m.Apply(feed.Batch[item]{Source: "files", Updates: []feed.Update[item]{update("f")}}, time.Time{})
	if got := m.Problems(clash); len(got) != 0 {
		t.Errorf("problems of a group that is gone: %v", got)
	}
	status := []feed.SourceStatus{{Name: "files", Synced: true}, {Name: "store", Synced: true, Items: 1}}
	if d := cmp.Diff(status, m.Sources()); d != "" {
		t.Errorf("sources (-want +got):\n%s", d)
	}
}

// Every item of a key but the one that counts is told of, also within one group.
func TestMergerProblemsWithinGroup(t *testing.T) {
	t.Parallel()
	m := merger()
	m.Apply(feed.Batch[item]{Source: "files", Full: true, Updates: []feed.Update[item]{update("f", item{"a", "1"}, item{"a", "2"})}}, time.Time{})
	want := []feed.Problem{{Source: "clash", Text: "1 over 2"}}
	got := m.Problems(func(counts, other item) feed.Problem {
		return feed.Problem{Source: "clash", Text: counts.text + " over " + other.text}
	})
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("problems (-want +got):\n%s", d)
	}
	m.Apply(feed.Batch[item]{Source: "files", Updates: []feed.Update[item]{update("f", item{"a", "2"})}}, time.Time{})
	if got := m.Items("a"); len(got) != 1 || got[0].text != "2" {
		t.Errorf("after the first is gone: got %v, want the second alone", got)
	}
}

func TestProblemString(t *testing.T) {
	t.Parallel()
	p := feed.Problem{Object: "VirtualService shop/web", Field: "spec.hosts", File: "web.yaml", Line: 12, Text: "is empty: name a host"}
	if got, want := p.String(), "web.yaml:12: VirtualService shop/web spec.hosts: is empty: name a host"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	if got, want := (feed.Problem{Text: "x"}).String(), "x"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}
