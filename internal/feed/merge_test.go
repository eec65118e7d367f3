package feed_test

import (
	"slices"
	"strings"
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
				for i, s := range m.Supplies(k) {
					if s.Item != want[i] || s.Source != "files" && s.Item.text == "files" || s.Source != "store" && s.Item.text == "store" {
						t.Errorf("Supplies(%q): got %+v at %d, want %v", k, s, i, want[i])
					}
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
	if len(m.Waiting()) == 0 {
		t.Error("synced, and the store has not delivered its first state")
	}
	m.Apply(feed.Batch[item]{Source: "store", Full: true}, time.Time{})
	if len(m.Waiting()) > 0 {
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
	got := m.Problems(clash)
	feed.SortProblems(got)
	if d := cmp.Diff(want, got); d != "" {
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

// A source says how much of what it supplies is old, and how old the oldest is.
func TestMergerStale(t *testing.T) {
	t.Parallel()
	at := func(hour int) time.Time { return time.Date(2026, 1, 1, hour, 0, 0, 0, time.UTC) }
	stale := func(group string, asOf time.Time, problems ...feed.Problem) feed.Update[item] {
		u := update(group, item{group, "1"})
		u.AsOf, u.Problems = asOf, problems
		return u
	}
	old := feed.Problem{Text: "broken", Stale: true, Since: at(9)}
	tests := map[string]struct {
		updates []feed.Update[item]
		stale   int
		asOf    time.Time
	}{
		"content that is as it should be is not old, whatever its age": {[]feed.Update[item]{stale("f", at(1))}, 0, time.Time{}},
		"a problem that leaves the content at work does not make it old": {
			[]feed.Update[item]{stale("f", at(1), feed.Problem{Severity: feed.Warning, Since: at(2)})}, 0, time.Time{},
		},
		"the oldest of several": {[]feed.Update[item]{stale("f", at(5), old), stale("g", at(3), old), stale("h", at(1))}, 2, at(3)},
		"what was read before the outage, by the time of the outage": {[]feed.Update[item]{stale("folder", at(12), old)}, 1, at(9)},
		"nobody knows":         {[]feed.Update[item]{stale("f", time.Time{}, feed.Problem{Stale: true})}, 1, time.Time{}},
		"known of one of them": {[]feed.Update[item]{stale("f", time.Time{}, feed.Problem{Stale: true}), stale("g", at(4), old)}, 2, at(4)},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := merger()
			m.Apply(feed.Batch[item]{Source: "files", Full: true, Updates: tc.updates}, time.Time{})
			got := m.Sources()[0]
			if got.Stale != tc.stale || !got.AsOf.Equal(tc.asOf) {
				t.Errorf("got %d of %v, want %d of %v", got.Stale, got.AsOf, tc.stale, tc.asOf)
			}
		})
	}
	m := merger()
	m.Apply(feed.Batch[item]{Source: "files", Full: true, Updates: []feed.Update[item]{stale("f", at(5), old)}}, time.Time{})
	m.Apply(feed.Batch[item]{Source: "files", Updates: []feed.Update[item]{stale("f", at(10))}}, time.Time{})
	if got := m.Sources()[0]; got.Stale != 0 || !got.AsOf.IsZero() {
		t.Errorf("after repair: got %d of %v, want none", got.Stale, got.AsOf)
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

// Errors are counted apart from warnings.
func TestErrors(t *testing.T) {
	t.Parallel()
	list := []feed.Problem{{Severity: feed.Warning}, {Severity: feed.Error}, {Severity: feed.Error, Stale: true}, {}}
	if n := feed.Errors(list); n != 2 || feed.Errors(nil) != 0 || list[0].IsError() || !list[2].IsError() {
		t.Errorf("%d are errors, want 2", n)
	}
}

// A source that is named twice stands once, where it is named first.
func TestMergerOfOneNameTwice(t *testing.T) {
	t.Parallel()
	m := merger()
	for _, names := range [][]string{{"store", "files", "store"}, {"files", "files", "store", "store"}, {"new", "new", "store"}} {
		m.Arrange(names)
		var got []string
		for _, s := range m.Sources() {
			got = append(got, s.Name)
		}
		if want := slices.Compact(slices.Clone(names)); !slices.Equal(got, want[:len(got)]) || len(got) != 2 {
			t.Errorf("%v are %v", names, got)
		}
	}
}

// What is not named any more keeps its rank beside what is, and new names do not change that.
func TestMergerWith(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct{ was, names, with, besides string }{
		{"a b", "a b", "a b", ""},
		{"a b", "b", "a b", "a"},
		{"a b", "new b", "new a b", "a"}, // renamed
		{"a b c", "new", "new a b c", "a b c"},
		{"a b c", "a new", "a new b c", "b c"},
		{"a b c d", "d a", "b c d a", "b c"},
		{"a b", "", "a b", "a b"},
		{"", "new", "new", ""},
	} {
		m := feed.NewMerger(strings.Fields(tc.was), func(s string) string { return s })
		names := strings.Fields(tc.names)
		if with, besides := strings.Join(m.With(names), " "), strings.Join(m.Besides(names), " "); with != tc.with || besides != tc.besides {
			t.Errorf("%q with %q: got %q and besides %q, want %q and %q", tc.was, tc.names, with, besides, tc.with, tc.besides)
		}
	}
}
