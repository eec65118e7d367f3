package recordtest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/ashore-mesh/ashore/internal/record"
)

// Run tests that a store keeps the promises of record.Store. open returns a new, empty store, and
// closes it when the test ends.
func Run(t *testing.T, open func(t *testing.T) record.Store) {
	t.Helper()
	for name, test := range map[string]func(*testing.T, record.Store){
		"an empty store":          testEmpty,
		"put, replace, delete":    testRoundTrip,
		"versions are not reused": testVersions,
		"list":                    testList,
		"conflicts":               testConflicts,
		"all or none":             testAllOrNone,
		"limits":                  testLimits,
		"list is consistent":      testConsistentList,
		"watch":                   testWatch,
		"similar keys":            testSimilarKeys,
		"one writer wins":         testOneWins,
		"reads after watch":       testReadAfterWatch,
		"changes":                 testChanges,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, open(t))
		})
	}
}

// key returns a key of the table "t".
func key(name string) record.Key { return record.Key{Table: "t", Name: name} }

// write returns a write for any version.
func write(name, value string) record.Write {
	return record.Write{Key: key(name), Value: []byte(value), Version: record.Any}
}

// commit fails the test if a commit fails.
func commit(t *testing.T, s record.Store, writes ...record.Write) {
	t.Helper()
	if err := s.Commit(t.Context(), writes...); err != nil {
		t.Fatalf("commit: %v", err)
	}
}

// get fails the test if a read fails.
func get(t *testing.T, s record.Store, k record.Key) record.Record {
	t.Helper()
	r, err := s.Get(t.Context(), k)
	if err != nil {
		t.Fatalf("get %v: %v", k, err)
	}
	if r.Key != k {
		t.Errorf("get %v: got the key %v", k, r.Key)
	}
	return r
}

// list returns the names and values of a table.
func list(t *testing.T, s record.Store, table string) []string {
	t.Helper()
	records, err := s.List(t.Context(), table)
	if err != nil {
		t.Fatalf("list %s: %v", table, err)
	}
	var out []string
	for _, r := range records {
		if r.Table != table || r.Version == "" {
			t.Errorf("list %s: %+v", table, r)
		}
		out = append(out, r.Name+"="+string(r.Value))
	}
	return out
}

func testEmpty(t *testing.T, s record.Store) {
	if r := get(t, s, key("a")); r.Version != "" || r.Value != nil {
		t.Errorf("got %+v, want no value and no version", r)
	}
	if got := list(t, s, "t"); got != nil {
		t.Errorf("got %v, want nothing", got)
	}
	commit(t, s) // no writes
}

func testRoundTrip(t *testing.T, s record.Store) {
	commit(t, s, record.Write{Key: key("a"), Value: []byte("1")})
	first := get(t, s, key("a"))
	if string(first.Value) != "1" || first.Version == "" || first.Version == record.Any {
		t.Fatalf("got %+v", first)
	}
	commit(t, s, record.Write{Key: key("a"), Value: []byte{}, Version: first.Version})
	second := get(t, s, key("a"))
	if second.Value == nil || len(second.Value) != 0 || second.Version == first.Version {
		t.Errorf("empty value: got %+v after %+v", second, first)
	}
	commit(t, s, record.Write{Key: key("a"), Version: second.Version})
	if r := get(t, s, key("a")); r.Version != "" {
		t.Errorf("deleted: got %+v", r)
	}
}

// A version is never used again, also not after the record was deleted. So a writer that read an
// older version always has a conflict.
func testVersions(t *testing.T, s record.Store) {
	seen := map[string]bool{}
	for range 5 {
		for _, value := range []string{"x", "x", "y"} {
			commit(t, s, write("a", value))
			v := get(t, s, key("a")).Version
			if seen[v] {
				t.Fatalf("version %s was used before", v)
			}
			seen[v] = true
		}
		commit(t, s, record.Write{Key: key("a"), Version: record.Any})
	}
}

func testList(t *testing.T, s record.Store) {
	commit(t, s, write("b", "2"), write("a", "1"), write("a/1", "3"), write("A", "4"), write("ab", "5"),
		write("ü", "6"))
	commit(t, s, record.Write{Key: record.Key{Table: "tt", Name: "a"}, Value: []byte("other"), Version: record.Any})
	if d := cmp.Diff([]string{"A=4", "a=1", "a/1=3", "ab=5", "b=2", "ü=6"}, list(t, s, "t")); d != "" {
		t.Errorf("by name (-want +got):\n%s", d)
	}
	commit(t, s, record.Write{Key: key("a"), Version: record.Any})
	if got := list(t, s, "t"); slices.Contains(got, "a=1") || len(got) != 5 {
		t.Errorf("after a delete: %v", got)
	}
}

func testConflicts(t *testing.T, s record.Store) {
	commit(t, s, write("a", "1"))
	old := get(t, s, key("a")).Version
	commit(t, s, write("a", "2"))
	for what, w := range map[string]record.Write{
		"must not exist and does":   {Key: key("a"), Value: []byte("x")},
		"an old version":            {Key: key("a"), Value: []byte("x"), Version: old},
		"delete of an old version":  {Key: key("a"), Version: old},
		"a version of none":         {Key: key("b"), Value: []byte("x"), Version: old},
		"delete of none, a version": {Key: key("b"), Version: old},
		"a version that never was":  {Key: key("a"), Value: []byte("x"), Version: "nonsense"},
	} {
		err := s.Commit(t.Context(), w)
		if !errors.Is(err, record.ErrConflict) || !strings.Contains(err.Error(), w.Name) {
			t.Errorf("%s: got %v, want ErrConflict that names the record", what, err)
		}
	}
	if d := cmp.Diff([]string{"a=2"}, list(t, s, "t")); d != "" {
		t.Errorf("a conflict changed something:\n%s", d)
	}
}

// If one write conflicts, none of its commit is done, at any position.
func testAllOrNone(t *testing.T, s record.Store) {
	commit(t, s, write("a", "1"), write("b", "1"))
	bad := record.Write{Key: key("b"), Value: []byte("x")} // it exists
	good := []record.Write{write("a", "2"), write("c", "2"),
		{Key: record.Key{Table: "u", Name: "d"}, Value: []byte("2")}}
	for at := range len(good) + 1 {
		if err := s.Commit(t.Context(), slices.Insert(slices.Clone(good), at, bad)...); !errors.Is(err,
			record.ErrConflict) {
			t.Fatalf("at %d: got %v, want ErrConflict", at, err)
		}
		if d := cmp.Diff([]string{"a=1", "b=1"}, slices.Concat(list(t, s, "t"), list(t, s, "u"))); d != "" {
			t.Errorf("at %d (-want +got):\n%s", at, d)
		}
	}
	commit(t, s, good...)
	if d := cmp.Diff([]string{"a=2", "b=1", "c=2", "d=2"}, slices.Concat(list(t, s, "t"), list(t, s, "u"))); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
}

func testLimits(t *testing.T, s record.Store) {
	name := strings.Repeat("n", record.MaxName-len("t"))
	commit(t, s, write(name, strings.Repeat("v", record.MaxValue)))
	if r := get(t, s, key(name)); len(r.Value) != record.MaxValue {
		t.Errorf("the largest value has %d bytes", len(r.Value))
	}
	for what, w := range map[string]record.Write{
		"value": write("a", strings.Repeat("v", record.MaxValue+1)),
		"name":  write(name+"n", "v"),
	} {
		if err := s.Commit(t.Context(), write("b", "1"), w); !errors.Is(err, record.ErrTooLarge) {
			t.Errorf("%s: got %v, want ErrTooLarge", what, err)
		}
	}
	for what, writes := range map[string][]record.Write{
		"no table":    {{Key: record.Key{Name: "a"}, Value: []byte("1")}},
		"no name":     {write("", "1")},
		"named twice": {write("a", "1"), write("a", "2")},
	} {
		if err := s.Commit(t.Context(), writes...); err == nil {
			t.Errorf("%s: no error", what)
		}
	}
	if got := list(t, s, "t"); len(got) != 1 {
		t.Errorf("got %d records, want 1", len(got))
	}
}

// increment adds one to records, and retries after a conflict.
func increment(ctx context.Context, s record.Store, names ...string) error {
	for {
		var writes []record.Write
		for _, name := range names {
			r, err := s.Get(ctx, key(name))
			if err != nil {
				return err
			}
			n := 0
			if r.Version != "" {
				if n, err = strconv.Atoi(string(r.Value)); err != nil {
					return err
				}
			}
			writes = append(writes, record.Write{Key: r.Key, Value: strconv.AppendInt(nil, int64(n+1), 10),
				Version: r.Version})
		}
		if err := s.Commit(ctx, writes...); !errors.Is(err, record.ErrConflict) {
			return err
		}
	}
}

// Writers and rounds of tests with concurrent writers.
const (
	writers = 8
	rounds  = 20
)

// each runs f in n goroutines, and fails the test with their errors.
func each(t *testing.T, n int, f func(i int) error) {
	t.Helper()
	errs := make([]error, n)
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() { errs[i] = f(i) })
	}
	wg.Wait()
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
}

// A list never contains a part of a commit.
func testConsistentList(t *testing.T, s record.Store) {
	commit(t, s, write("a", "0"), write("z", "0"))
	done := make(chan error, 1)
	go func() {
		for range 100 {
			if err := increment(t.Context(), s, "a", "z"); err != nil {
				done <- err
				return
			}
		}
		done <- nil
	}()
	for {
		all, err := s.List(t.Context(), "t")
		if err != nil || len(all) != 2 || string(all[0].Value) != string(all[1].Value) {
			t.Fatalf("listed %v, %v", all, err)
		}
		select {
		case err := <-done:
			if err != nil {
				t.Fatal(err)
			}
			return
		default:
		}
	}
}

// wantChange waits until a watch reports a change.
func wantChange(t *testing.T, c <-chan struct{}) {
	t.Helper()
	select {
	case <-c:
	case <-time.After(20 * time.Second):
		t.Fatal("no change was reported")
	}
}

// wantNoChange fails the test if a watch reports a change. A store in one process reports it before
// Commit returns.
func wantNoChange(t *testing.T, c <-chan struct{}) {
	t.Helper()
	select {
	case <-c:
		t.Error("a change was reported, but nothing changed")
	default:
	}
}

func testWatch(t *testing.T, s record.Store) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	first, second, other := s.Watch(ctx, "t"), s.Watch(ctx, "t"), s.Watch(ctx, "other")
	wantNoChange(t, first)
	commit(t, s, write("a", "1"))
	wantChange(t, first)
	wantChange(t, second)
	wantNoChange(t, other)
	if err := s.Commit(t.Context(), record.Write{Key: key("a"), Value: []byte("x")}); !errors.Is(err,
		record.ErrConflict) {
		t.Fatalf("got %v", err)
	}
	wantNoChange(t, first)
	commit(t, s, record.Write{Key: key("a"), Version: record.Any},
		record.Write{Key: record.Key{Table: "other", Name: "b"}, Value: []byte("1")})
	wantChange(t, first)
	wantChange(t, other)
	for range 3 { // without a reader, several changes become one
		commit(t, s, write("a", "2"))
	}
	wantChange(t, first)
}

// Similar keys are different records.
func testSimilarKeys(t *testing.T, s record.Store) {
	keys := []record.Key{
		{Table: "a", Name: "b/c"}, {Table: "a/b", Name: "c"}, {Table: "ab", Name: "c"}, {Table: "a", Name: "bc"},
		{Table: "a", Name: "b\x00c"}, {Table: "a\x00b", Name: "c"}, {Table: "a", Name: "\x00"}, {Table: "a\x00",
			Name: "\x00b"},
	}
	for i, k := range keys {
		commit(t, s, record.Write{Key: k, Value: strconv.AppendInt(nil, int64(i), 10)})
	}
	for i, k := range keys {
		if got := string(get(t, s, k).Value); got != strconv.Itoa(i) {
			t.Errorf("%q: got %q, want %d", k, got, i)
		}
	}
	if got := list(t, s, "a"); len(got) != 4 {
		t.Errorf("table a: %q", got)
	}
}

// If several writers create the same record at once, one succeeds: a one-time token is used once.
func testOneWins(t *testing.T, s record.Store) {
	for round := range rounds {
		var mu sync.Mutex
		var won []int
		each(t, writers, func(i int) error {
			err := s.Commit(t.Context(), record.Write{Key: key(fmt.Sprintf("token-%d", round)),
				Value: fmt.Append(nil, i)}, write(fmt.Sprintf("by-%d", i), "x"))
			if errors.Is(err, record.ErrConflict) {
				return nil
			}
			mu.Lock()
			defer mu.Unlock()
			won = append(won, i)
			return err
		})
		if len(won) != 1 {
			t.Fatalf("writers %v succeeded, want one", won)
		}
		if got := string(get(t, s, key(fmt.Sprintf("token-%d", round))).Value); got != strconv.Itoa(won[0]) {
			t.Errorf("writer %d succeeded, but the value is %s", won[0], got)
		}
	}
}

// After a reported change, a read returns it: a replica does not miss a revocation.
func testReadAfterWatch(t *testing.T, s record.Store) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	c := s.Watch(ctx, "t")
	done := make(chan error, 1)
	go func() { done <- s.Commit(t.Context(), write("a", "1")) }()
	wantChange(t, c)
	if got := list(t, s, "t"); len(got) != 1 {
		t.Errorf("after the reported change: listed %v", got)
	}
	if err := <-done; err != nil {
		t.Error(err)
	}
}
