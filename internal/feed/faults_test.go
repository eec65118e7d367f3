package feed

import (
	"slices"
	"testing"
	"time"
)

// What is wrong, where, and since when: of a source's own knowing, or because another source has the same.
func TestFaults(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	m := NewMerger([]string{"one", "two"}, func(s string) string { return s })
	wrong := []Problem{{Severity: Error, Object: "x", Text: "wrong"}}
	m.Apply(Batch[string]{Source: "one", Full: true, Updates: []Update[string]{
		{Group: "good", Items: []string{"a"}, Edited: at},
		{Group: "warned", Items: []string{"b"}, Problems: []Problem{{Severity: Warning, Object: "b"}}, Edited: at},
		{Group: "wrong", Problems: wrong, Edited: at},
		{Group: "twice", Items: []string{"a"}, Edited: at},
		{Group: "wrong before", Problems: wrong},
	}}, at)
	m.Apply(Batch[string]{Source: "two", Full: true, Updates: []Update[string]{
		{Group: "clashes", Items: []string{"a"}, Edited: at},
		{Group: "unread", Problems: []Problem{{Severity: Error, Unread: true}}},
	}}, at)
	want := []Fault{{GroupID{"one", "wrong"}, at, false, true}, {GroupID{"two", "clashes"}, at, true, true}}
	if got := m.Faults(); !slices.Equal(got, want) {
		t.Errorf("faults are %v, want %v", got, want)
	}
	for id, want := range map[GroupID]bool{{"one", "good"}: false, {"one", "warned"}: false, {"one", "wrong before"}: true, {"two", "clashes"}: true, {"two", "none"}: false} {
		if got := m.Faulty(id); got != want {
			t.Errorf("%v is faulty: %v, want %v", id, got, want)
		}
	}
	if got := m.Refused(); len(got) != 1 || got["x"] != (GroupID{"one", "wrong"}) {
		t.Errorf("refused are %v, want x in the first group that refuses it", got)
	}
	if id, ok := m.Unread(); !ok || id != (GroupID{"two", "unread"}) {
		t.Errorf("unread is %v, %v", id, ok)
	}
	m.Apply(Batch[string]{Source: "two", Updates: []Update[string]{{Group: "unread"}}}, at)
	if id, ok := m.Unread(); ok {
		t.Errorf("%v is unread, and all can be read", id)
	}
}

// What is wrong since the start is told apart from what was edited later, or came with a source that was not there.
func TestFirstFaults(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	m := NewMerger([]string{"one", "two"}, func(s string) string { return s })
	wrong := []Problem{{Severity: Error, Object: "x", Text: "wrong"}}
	m.Apply(Batch[string]{Source: "one", Full: true, Updates: []Update[string]{{Group: "wrong", Problems: wrong, Edited: at}}}, at)
	m.Apply(Batch[string]{Source: "two", Full: true, Updates: []Update[string]{{Group: "wrong too", Problems: wrong, Edited: at}}}, at)
	want := []Fault{{GroupID{"one", "wrong"}, at, false, true}, {GroupID{"two", "wrong too"}, at, false, true}}
	if got := m.Faults(); !slices.Equal(got, want) {
		t.Errorf("faults are %v, want %v", got, want)
	}
	later := at.Add(time.Second)
	m.Apply(Batch[string]{Source: "one", Updates: []Update[string]{{Group: "wrong", Problems: wrong, Edited: later}}}, at)
	m.Apply(Batch[string]{Source: "two", Full: true, Updates: []Update[string]{
		{Group: "wrong too", Problems: wrong, Edited: at},
		{Group: "wrong", Problems: wrong, Edited: at},
	}}, at)
	want = []Fault{{GroupID{"one", "wrong"}, later, false, false}, {GroupID{"two", "wrong"}, at, false, false}, {GroupID{"two", "wrong too"}, at, false, true}}
	if got := m.Faults(); !slices.Equal(got, want) {
		t.Errorf("later faults are %v, want %v", got, want)
	}
	m.Arrange([]string{"three"})
	m.Apply(Batch[string]{Source: "three", Full: true, Updates: []Update[string]{{Group: "wrong", Problems: wrong, Edited: later}}}, at)
	if got := m.Faults(); len(got) != 1 || got[0].First {
		t.Errorf("faults of a source that came later are %v", got)
	}
}

// Of a source in whose place stood what was kept that counts as first which is seen when it is back: groups that were kept, and new ones
// until all was seen.
func TestFirstFaultsOfKept(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	m := NewMerger([]string{"one"}, func(s string) string { return s })
	wrong := []Problem{{Severity: Error, Object: "x", Text: "wrong"}}
	first := func(what string, want ...string) {
		t.Helper()
		var got []string
		for _, f := range m.Faults() {
			if f.First {
				got = append(got, f.Group.Group)
			}
		}
		if !slices.Equal(got, want) {
			t.Errorf("%s: first are the faults of %v, want %v", what, got, want)
		}
	}
	m.Apply(Batch[string]{Source: "one", Full: true, Updates: []Update[string]{
		{Group: "kept", Kept: true}, {Group: "kept too", Kept: true}, {Group: "read", Items: []string{"r"}}, {Group: ".", Problems: []Problem{{Away: true}}},
	}}, at)
	m.Apply(Batch[string]{Source: "one", Updates: []Update[string]{
		{Group: "kept", Problems: wrong, Edited: at}, {Group: "read", Problems: wrong, Edited: at}, {Group: "new", Problems: wrong, Edited: at}, {Group: "."},
	}}, at)
	first("some is back", "kept", "new")
	m.Apply(Batch[string]{Source: "one", Updates: []Update[string]{{Group: "kept too", Problems: wrong, Edited: at}, {Group: "new", Problems: wrong, Edited: at.Add(1)}}}, at)
	first("all is back", "kept", "kept too")
	m.Apply(Batch[string]{Source: "one", Updates: []Update[string]{{Group: ".", Problems: []Problem{{Away: true}}}}}, at)
	m.Apply(Batch[string]{Source: "one", Updates: []Update[string]{{Group: "later", Problems: wrong, Edited: at}, {Group: "."}}}, at)
	first("it was away since", "kept", "kept too")
}

// What is from before the start, or of another source in whose place one is, was not seen until that says something.
func TestUnseen(t *testing.T) {
	t.Parallel()
	m := NewMerger([]string{"one", "two"}, func(s string) string { return s })
	at := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	is := func(what string, unseen []string, seen map[string]bool) {
		t.Helper()
		if got := m.Unseen(); !slices.Equal(got, unseen) {
			t.Errorf("%s: unseen are %v, want %v", what, got, unseen)
		}
		for group, want := range seen {
			if got := m.Seen()(GroupID{"one", group}); got != want {
				t.Errorf("%s: %s was seen: %v, want %v", what, group, got, want)
			}
		}
	}
	is("nothing was said", []string{"one", "two"}, map[string]bool{"a": false})
	m.Apply(Batch[string]{Source: "two", Full: true}, at)
	m.Apply(Batch[string]{Source: "one", Full: true, Updates: []Update[string]{
		{Group: "a", Items: []string{"a"}}, {Group: "b", Items: []string{"b"}, Kept: true}, {Group: "c", Kept: true},
	}}, at)
	is("some is kept", []string{"one"}, map[string]bool{"a": true, "b": false, "c": false, "d": false})
	m.Apply(Batch[string]{Source: "one", Updates: []Update[string]{{Group: "b", Items: []string{"b"}}, {Group: "c"}}}, at)
	is("it was read", nil, map[string]bool{"a": true, "b": true, "c": true, "d": true})
	m.Anew([]string{"one", "none"})
	is("another is in its place", []string{"one"}, map[string]bool{"a": true, "d": false})
	m.Apply(Batch[string]{Source: "one", Full: true}, at)
	is("that has said everything", nil, map[string]bool{"a": true, "d": true})
}
