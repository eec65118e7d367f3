package consul

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/ashore-mesh/ashore/config/configtest"
	"github.com/ashore-mesh/ashore/internal/record"
	"github.com/ashore-mesh/ashore/internal/testconsul"
)

// A write whose answer is lost is done once, and is not said to have failed.
func TestLostAnswers(t *testing.T) {
	t.Parallel()
	s := newSite(testconsul.Start(t, nil))
	other := s.open(t)
	way := newBetween(t, s.address)
	s.address = way.URL
	a := s.open(t)
	var n, lost atomic.Int64
	way.losing(func(path string, body []byte) fate {
		if path != "/v1/txn" || !bytes.Contains(body, []byte(`"set"`)) && !bytes.Contains(body, []byte(`"cas"`)) {
			return passes
		}
		switch n.Add(1) % 4 {
		case 0:
			lost.Add(1)
			return unanswered
		case 2:
			return unheard
		}
		return passes
	})
	const writers, turns = 3, 12
	var wg sync.WaitGroup
	for i := range writers {
		r := a
		if i == 0 {
			r = other
		}
		wg.Go(func() {
			for range turns {
				if err := addOne(t.Context(), r.Records()); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	way.losing(nil)
	if got := valueOf(t, a, "count"); got != fmt.Sprint(writers*turns) {
		t.Errorf("%d were added, and the count is %s", writers*turns, got)
	}
	if lost.Load() == 0 {
		t.Error("no answer was lost: the test shows nothing")
	}
	equalStates(t, a, other)
}

// While Consul is away reads go on from memory, and writes fail and say why; then everything goes
// on.
func TestAway(t *testing.T) {
	t.Parallel()
	agent := testconsul.Start(t, nil)
	s := newSite(agent)
	a := s.open(t)
	put(t, a, "x", "1")
	if _, err := configtest.Put(t.Context(), a, configtest.Object("o", "one.test"), "test"); err != nil {
		t.Fatal(err)
	}
	agent.Kill()
	err := a.Records().Commit(t.Context(), record.Write{Key: record.Key{Table: "t", Name: "y"}, Value: []byte("2")})
	if err == nil || !strings.Contains(err.Error(), "store.address") {
		t.Errorf("write: got %v, want an error that names the setting", err)
	}
	if got := valueOf(t, a, "x"); got != "1" {
		t.Errorf("read %q from memory", got)
	}
	if o, err := a.Get(t.Context(), configtest.Key("o")); err != nil || o == nil {
		t.Errorf("got %v, %v", o, err)
	}
	eventually(t, "the standing tells it", func() bool { return strings.Contains(a.Standing().Error, "store.address") })
	follower := a.Records()
	if err := follower.Behind(); err == nil || !strings.Contains(err.Error(), "store.address") {
		t.Errorf("its records are behind by %v, want an error that names the setting", err)
	}
	if _, err := configtest.Put(t.Context(), a, configtest.Object("p", "one.test"), "test"); !errors.Is(err, ErrAway) {
		t.Errorf("put: got %v, want ErrAway", err)
	}
	agent.Start()
	eventually(t, "it is in touch again", func() bool { return a.Standing().Error == "" })
	if err := follower.Behind(); err != nil {
		t.Errorf("its records are behind still: %v", err)
	}
	put(t, a, "y", "3")
	if got := valueOf(t, s.open(t), "y"); got != "3" {
		t.Errorf("another replica reads %q", got)
	}
}

// A write that hangs delays no read, and no write of another log.
func TestHangingWrite(t *testing.T) {
	t.Parallel()
	s := newSite(testconsul.Start(t, nil))
	b := s.open(t)
	way := newBetween(t, s.address)
	s.address = way.URL
	a := s.open(t)
	var hanging atomic.Bool
	way.losing(func(path string, body []byte) fate {
		if path == "/v1/txn" && bytes.Contains(body, []byte("/identity/")) {
			hanging.Store(true)
			return delayed
		}
		return passes
	})
	done := make(chan error, 1)
	go func() {
		done <- a.Records().Commit(t.Context(), record.Write{Key: record.Key{Table: "t", Name: "hangs"}, Value: []byte("1")})
	}()
	eventually(t, "the write hangs", hanging.Load)
	put(t, b, "x", "1")
	if got := valueOf(t, a, "x"); got != "1" {
		t.Errorf("read %q, want what another replica wrote meanwhile", got)
	}
	if _, err := configtest.Put(t.Context(), a, configtest.Object("o", "one.test"), "test"); err != nil {
		t.Errorf("a write of an object: %v", err)
	}
	if len(done) > 0 {
		t.Error("the write has ended: the test shows nothing")
	}
	close(way.until)
	if err := <-done; err != nil && !errors.Is(err, ErrUnknown) {
		t.Error(err)
	}
}

// A commit of records that are in two logs is refused whole.
func TestTwoLogs(t *testing.T) {
	t.Parallel()
	a := newSite(testconsul.Start(t, nil)).open(t)
	err := a.Records().Commit(t.Context(), record.Write{Key: record.Key{Table: "t", Name: "x"}, Value: []byte("1")},
		record.Write{Key: record.Key{Table: "replica", Name: "one"}, Value: []byte("1")})
	if err == nil || !strings.Contains(err.Error(), "cannot be written together") {
		t.Errorf("got %v", err)
	}
	if got := valueOf(t, a, "x"); got != "" {
		t.Errorf("half of it was written: %q", got)
	}
}
