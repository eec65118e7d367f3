package consul

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ashore-mesh/ashore/config"
	"github.com/ashore-mesh/ashore/internal/record"
	"github.com/ashore-mesh/ashore/internal/testconsul"
)

// Who reads waits no longer than his context lasts, also when he is the first of those who ask at
// that time; the others have their answer all the same.
func TestReaderLeaves(t *testing.T) {
	t.Parallel()
	s := newSite(testconsul.Start(t, nil))
	a, b := s.open(t), s.open(t)
	if err := a.await(t.Context()); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	left := make(chan error, 1)
	go func() { left <- a.fresh(ctx) }()
	eventually(t, "it asks", func() bool {
		a.asking.mu.Lock()
		defer a.asking.mu.Unlock()
		return a.asking.next != nil
	})
	cancel()
	eventually(t, "it leaves", func() bool { return len(left) == 1 })
	if err := <-left; !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
	put(t, b, "x", "1")
	time.AfterFunc(100*time.Millisecond, func() { <-a.turn })
	if got := valueOf(t, a, "x"); got != "1" {
		t.Errorf("who asks with him reads %q", got)
	}
}

// While the chunks of a large write are on their way nobody waits for them: reads are answered by
// what Consul holds, and small writes are done.
func TestLargeWriteHoldsNobody(t *testing.T) {
	t.Parallel()
	s := newSite(testconsul.Start(t, nil))
	b := s.open(t)
	put(t, b, "x", "0")
	way := newBetween(t, s.address)
	s.address = way.URL
	a := s.open(t)
	var chunks atomic.Int64
	way.losing(func(path string, _ []byte) fate {
		if strings.HasSuffix(path, "/0000") {
			chunks.Add(1)
			return delayed
		}
		return passes
	})
	done := make(chan error, 1)
	go func() {
		_, err := a.Put(t.Context(), largeObject(), "test")
		done <- err
	}()
	eventually(t, "a chunk is on its way", func() bool { return chunks.Load() > 0 })
	put(t, b, "x", "1")
	if got := valueOf(t, a, "x"); got != "1" {
		t.Errorf("a read: got %q", got)
	}
	if err := a.Records().Commit(t.Context(), record.Write{Key: record.Key{Table: "t", Name: "y"},
		Value: []byte("2")}); err != nil {
		t.Errorf("a small write: got %v", err)
	}
	if len(done) > 0 { // a chunk may take some seconds, and not more
		t.Error("they waited for the end of the large write")
	}
	close(way.until)
	if err := <-done; err != nil {
		t.Errorf("the large write: got %v", err)
	}
	if chunks.Load() != 1 {
		t.Errorf("its first chunk was written %d times", chunks.Load())
	}
	if _, err := b.Get(t.Context(), largeObject().Key); err != nil {
		t.Error(err)
	}
	equalStates(t, fresh(t, a), fresh(t, b))
}

// A large write that comes to nothing leaves no chunks behind: it is a conflict by then, or who
// asked has gone.
func TestLargeWriteGivenUp(t *testing.T) {
	t.Parallel()
	s := newSite(testconsul.Start(t, nil))
	b := s.open(t)
	put(t, b, "x", "0")
	way := newBetween(t, s.address)
	inner := s
	s.address = way.URL
	a := s.open(t)
	var chunks atomic.Int64
	way.losing(func(path string, _ []byte) fate {
		if strings.HasSuffix(path, "/0000") {
			chunks.Add(1)
			return delayed
		}
		return passes
	})
	ctx, cancel := context.WithCancel(t.Context())
	left, beaten := make(chan error, 1), make(chan error, 1)
	go func() {
		_, err := a.Put(ctx, largeObject(), "test")
		left <- err
	}()
	go func() {
		o := largeObject()
		o.Revision = "0"
		_, err := a.Put(t.Context(), o, "test")
		beaten <- err
	}()
	eventually(t, "both are on their way", func() bool { return chunks.Load() == 2 })
	cancel()
	if err := <-left; !errors.Is(err, context.Canceled) {
		t.Errorf("who has gone: got %v", err)
	}
	if _, err := b.Put(t.Context(), smaller(), "test"); err != nil {
		t.Fatal(err)
	}
	close(way.until)
	if err := <-beaten; !expected(err) {
		t.Errorf("who was beaten: got %v, want a conflict", err)
	}
	if got := inner.kv(t, http.MethodGet, "chunk?keys", ""); strings.Contains(got, "chunk") {
		t.Errorf("there are chunks: %s", got)
	}
}

// smaller is another content of the large object.
func smaller() *config.Object {
	o := largeObject()
	o.Annotations = nil
	return o
}
