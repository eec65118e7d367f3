package recordtest

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ashore-mesh/ashore/internal/record"
)

// Run tests that a store keeps the promises of record.Store. open returns a new, empty store, and
// closes it when the test ends.
func Run(t *testing.T, open func(t *testing.T) record.Store) {
	t.Helper()
	for name, test := range map[string]func(*testing.T, record.Store){
		"random commits":  testRandom,
		"limits":          testLimits,
		"watch":           testWatch,
		"one writer wins": testOneWins,
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
	if got := list(t, s, "t"); len(got) != 1 { // a replica does not miss a revocation
		t.Errorf("after the reported change: listed %v", got)
	}
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
