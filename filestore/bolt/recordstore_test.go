package bolt

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"testing"

	"github.com/ashore-mesh/ashore/internal/record"
	"github.com/ashore-mesh/ashore/internal/record/recordtest"
)

func TestRecords(t *testing.T) {
	t.Parallel()
	recordtest.Run(t, func(t *testing.T) record.Store { return open(t, Config{Dir: t.TempDir()}).Records() })
}

func token(name string) record.Key { return record.Key{Table: "token", Name: name} }

// Records outlive the store, with their versions, and no version comes back.
func TestRecordsReopen(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s := open(t, checked(t, dir))
	put := func(s *Store, name string) {
		t.Helper()
		if err := s.Records().Commit(t.Context(), record.Write{Key: token(name), Value: []byte(name), Version: record.Any}); err != nil {
			t.Fatal(err)
		}
	}
	put(s, "a")
	put(s, "b")
	last, err := s.Records().Get(t.Context(), token("b"))
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(s.Records().Commit(t.Context(), record.Write{Key: token("b"), Version: record.Any}), s.Close()); err != nil {
		t.Fatal(err)
	}
	again := open(t, checked(t, dir))
	put(again, "b")
	all, err := again.Records().List(t.Context(), "token")
	if err != nil || len(all) != 2 || string(all[0].Value) != "a" {
		t.Fatalf("got %v, %v", all, err)
	}
	if all[1].Version == last.Version {
		t.Errorf("version %s came back after a restart", last.Version)
	}
}

// Commits that wait at the same time share a transaction, and one that cannot be done does not stop the others.
func TestRecordsShareTransactions(t *testing.T) {
	t.Parallel()
	s := open(t, Config{Dir: t.TempDir()})
	const commits = 100
	before := s.db.Stats()
	s.recs.turn <- struct{}{} // nobody writes until all wait
	var wg sync.WaitGroup
	errs := make([]error, commits)
	for i := range commits {
		wg.Go(func() {
			errs[i] = s.Records().Commit(t.Context(), record.Write{Key: token(fmt.Sprint(i / 2)), Value: []byte("x")})
		})
	}
	untilWaiting(s, commits)
	<-s.recs.turn
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
	// a transaction writes some pages, a few of them for each hundred small records
	after := s.db.Stats()
	if writes := after.TxStats.GetWrite() - before.TxStats.GetWrite(); writes > commits/2 {
		t.Errorf("%d writes for %d commits at the same time: they do not share a transaction", writes, commits)
	}
}

// untilWaiting returns when so many commits wait.
func untilWaiting(s *Store, commits int) {
	for waiting := -1; waiting < commits; {
		s.recs.mu.Lock()
		waiting = len(s.recs.waiting)
		s.recs.mu.Unlock()
		runtime.Gosched()
	}
}

// A commit whose caller goes away before its turn is not done.
func TestRecordsWithdrawn(t *testing.T) {
	t.Parallel()
	s := open(t, Config{Dir: t.TempDir()})
	s.recs.turn <- struct{}{}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- s.Records().Commit(ctx, record.Write{Key: token("a"), Value: []byte("x")}) }()
	untilWaiting(s, 1)
	cancel()
	if err := <-done; !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
	<-s.recs.turn
	if err := s.Records().Commit(t.Context(), record.Write{Key: token("b"), Value: []byte("x")}); err != nil {
		t.Error(err)
	}
	if all, err := s.Records().List(t.Context(), "token"); err != nil || len(all) != 1 {
		t.Errorf("got %v, %v; want b alone", all, err)
	}
}

func TestRecordsClosed(t *testing.T) {
	t.Parallel()
	s := open(t, Config{Dir: t.TempDir()})
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	_, get := s.Records().Get(t.Context(), token("a"))
	_, list := s.Records().List(t.Context(), "token")
	commit := s.Records().Commit(t.Context(), record.Write{Key: token("a"), Value: []byte("x")})
	for what, err := range map[string]error{"get": get, "list": list, "commit": commit} {
		if !errors.Is(err, ErrClosed) {
			t.Errorf("%s: got %v, want ErrClosed", what, err)
		}
	}
}
