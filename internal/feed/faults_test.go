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
	want := []Fault{{GroupID{"one", "wrong"}, at, false}, {GroupID{"two", "clashes"}, at, true}}
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
	if id, ok := m.Unread([]string{"two"}); !ok || id != (GroupID{"two", "unread"}) {
		t.Errorf("unread is %v, %v", id, ok)
	}
	if _, ok := m.Unread([]string{"one"}); ok {
		t.Error("a source that can be read is said not to be")
	}
}
