package bolt

import (
	"errors"
	"fmt"
	"runtime"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/ashore-mesh/ashore/internal/record"
	"github.com/ashore-mesh/ashore/internal/record/recordtest"
)

func TestRecords(t *testing.T) {
	t.Parallel()
	recordtest.Run(t, func(t *testing.T) record.Store { return open(t, Config{Dir: t.TempDir()}).Records() })
}

func token(name string) record.Key { return record.Key{Table: "token", Name: name} }

// Records of all tables are there after a restart, and no version is used twice.
func TestRecordsReopen(t *testing.T) {
	t.Parallel()
	s := open(t, Config{Dir: t.TempDir()})
	want := map[record.Key]string{{Table: "a", Name: "x/y"}: "1", {Table: "b", Name: "\x00"}: "", token("a"): "3"}
	for k, v := range want {
		if err := s.Records().Commit(t.Context(), record.Write{Key: k, Value: []byte(v)}); err != nil {
			t.Fatal(err)
		}
	}
	versions := map[string]bool{}
	for _, value := range [][]byte{[]byte("x"), nil} {
		s = reopen(t, s)
		write := record.Write{Key: token("b"), Value: value, Version: record.Any}
		if err := s.Records().Commit(t.Context(), write); err != nil {
			t.Fatal(err)
		}
		list, err := s.AllRecords(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		got := map[record.Key]string{}
		for _, r := range list {
			got[r.Key], versions[r.Version] = string(r.Value), true
		}
		delete(got, token("b"))
		if d := cmp.Diff(want, got); d != "" {
			t.Errorf("(-want +got):\n%s", d)
		}
	}
	if err := s.Records().Commit(t.Context(), record.Write{Key: token("b"), Value: []byte("y")}); err != nil {
		t.Fatal(err)
	}
	if r, err := s.Records().Get(t.Context(), token("b")); err != nil || versions[r.Version] || r.Version == "" {
		t.Errorf("got %+v, %v, want a new version", r, err)
	}
}

// Commits that wait at the same time share a transaction, and a conflict of one concerns no other.
func TestRecordsShareTransactions(t *testing.T) {
	t.Parallel()
	s := open(t, Config{Dir: t.TempDir()})
	const commits = 100
	before := s.db.Stats()
	s.writing.Lock() // all wait
	var wg sync.WaitGroup
	errs := make([]error, commits)
	for i := range commits {
		wg.Go(func() {
			errs[i] = s.Records().Commit(t.Context(), record.Write{Key: token(fmt.Sprint(i / 2)), Value: []byte("x")})
		})
	}
	for waiting := 0; waiting < commits; runtime.Gosched() {
		s.recs.mu.Lock()
		waiting = len(s.recs.waiting)
		s.recs.mu.Unlock()
	}
	s.writing.Unlock()
	wg.Wait()
	conflicts := 0
	for _, err := range errs {
		if errors.Is(err, record.ErrConflict) {
			conflicts++
		} else if err != nil {
			t.Error(err)
		}
	}
	if conflicts != commits/2 {
		t.Errorf("%d conflicts, want %d", conflicts, commits/2)
	}
	after := s.db.Stats()
	if writes := after.TxStats.GetWrite() - before.TxStats.GetWrite(); writes > commits/2 {
		t.Errorf("%d page writes for %d commits: they do not share a transaction", writes, commits)
	}
}
