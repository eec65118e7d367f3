package recordtest

import (
	"bytes"
	"cmp"
	"errors"
	"maps"
	"math/rand/v2"
	"slices"
	"strconv"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"

	"github.com/ashore-mesh/ashore/internal/record"
)

// commits is how many random commits are tested.
const commits = 300

// keys are similar, so that a store that joins tables and names mixes them up.
func keys() []record.Key {
	return []record.Key{
		{Table: "a", Name: "b/c"}, {Table: "a/b", Name: "c"}, {Table: "ab", Name: "c"}, {Table: "a", Name: "bc"},
		{Table: "a", Name: "b\x00c"}, {Table: "a\x00b", Name: "c"}, {Table: "a", Name: "\x00"}, {Table: "a", Name: "B"},
		{Table: "a\x00", Name: "\x00b"}, {Table: "a", Name: "ü"},
	}
}

// model is what a store has after random commits.
type model struct {
	now  map[record.Key]record.Record
	used map[record.Key][]string // all versions that a record had
	// known is what Changes returned until marks.
	known map[record.Key]record.Record
	marks map[string]record.Mark
}

// testRandom does random commits. They change what they should, or nothing if a version is wrong. No
// version is used twice. Get, List and Changes agree.
func testRandom(t *testing.T, s record.Store) {
	m := model{map[record.Key]record.Record{}, map[record.Key][]string{}, map[record.Key]record.Record{},
		map[string]record.Mark{}}
	m.compare(t, s)
	for n := range commits {
		writes, conflict := m.writes(n)
		err := s.Commit(t.Context(), writes...)
		if conflict != errors.Is(err, record.ErrConflict) || !conflict && err != nil {
			t.Fatalf("commit of %+v to %+v: %v, want a conflict: %t", writes, m.now, err, conflict)
		}
		for _, w := range writes {
			if !conflict {
				m.apply(t, w, get(t, s, w.Key))
			}
		}
		if n%10 == 0 || n == commits-1 {
			m.compare(t, s)
		}
	}
}

// writes returns random writes, and whether one of them has a wrong version.
func (m *model) writes(n int) (writes []record.Write, conflict bool) {
	all := keys()
	for _, i := range rand.Perm(len(all))[:rand.N(3)] {
		k := all[i]
		versions := append(slices.Clone(m.used[k]), "", "nonsense", record.Any, record.Any, m.now[k].Version, m.now[k].Version)
		w := record.Write{Key: k, Value: [][]byte{nil, {}, []byte(strconv.Itoa(n))}[rand.N(3)],
			Version: versions[rand.N(len(versions))]}
		conflict = conflict || w.Version != record.Any && w.Version != m.now[k].Version
		writes = append(writes, w)
	}
	return writes, conflict
}

// apply takes a write, after which the store has got.
func (m *model) apply(t *testing.T, w record.Write, got record.Record) {
	t.Helper()
	if !bytes.Equal(got.Value, w.Value) || (got.Value == nil) != (w.Value == nil) || (got.Version == "") != (w.Value == nil) ||
		got.Version == record.Any || slices.Contains(m.used[w.Key], got.Version) {
		t.Fatalf("after the write %+v: got %+v; versions before: %q", w, got, m.used[w.Key])
	}
	delete(m.now, w.Key)
	if w.Value != nil {
		m.now[w.Key] = got
		m.used[w.Key] = append(m.used[w.Key], got.Version)
	}
}

// compare reads all of the store, and what has changed since the last call.
func (m *model) compare(t *testing.T, s record.Store) {
	t.Helper()
	got := map[record.Key]record.Record{}
	for _, k := range keys() {
		list, err := s.List(t.Context(), k.Table)
		if err != nil || !slices.IsSortedFunc(list, func(a, b record.Record) int { return cmp.Compare(a.Name, b.Name) }) {
			t.Fatalf("list %q: %+v, %v", k.Table, list, err)
		}
		for _, r := range list {
			got[r.Key] = r
		}
		changes, mark, err := s.Changes(t.Context(), k.Table, m.marks[k.Table])
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range changes {
			m.known[r.Key] = r
		}
		if more, _, err := s.Changes(t.Context(), k.Table, mark); len(more) > 0 || err != nil {
			t.Errorf("changes of %q again: %+v, %v", k.Table, more, err)
		}
		m.marks[k.Table] = mark
	}
	maps.DeleteFunc(m.known, func(_ record.Key, r record.Record) bool { return r.Version == "" })
	for what, have := range map[string]map[record.Key]record.Record{"list": got, "changes": m.known} {
		if d := gocmp.Diff(m.now, have); d != "" {
			t.Fatalf("%s (-want +got):\n%s", what, d)
		}
	}
}
