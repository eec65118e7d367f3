package consul

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"

	"github.com/ashore-mesh/ashore/internal/record"
	"github.com/ashore-mesh/ashore/internal/testconsul"
)

// A start while Consul is away asks many things of the store. Each is answered by the copy that
// stands in, at once: whether Consul is back is not looked at for each.
func TestColdStartAsksOnce(t *testing.T) {
	t.Parallel()
	agent := testconsul.Start(t, nil)
	s := newSite(agent)
	link := newBetween(t, s.address)
	s.address = link.URL
	kept := newShelf()
	a, end := s.start(t, kept)
	put(t, a, "revoked", "mallory")
	end()
	var asked atomic.Int64
	link.losing(func(string, []byte) fate { asked.Add(1); return unheard })

	b, err := Open(t.Context(), s.config(t, kept))
	if err != nil {
		t.Fatal(err)
	}
	before := asked.Load()
	for range 20 {
		if got := valueOf(t, b, "revoked"); got != "mallory" {
			t.Fatalf("read %q from the copy", got)
		}
		err := b.Records().Commit(t.Context(), record.Write{Key: record.Key{Table: "t", Name: "x"}, Value: []byte("y"),
			Version: record.Any})
		if !errors.Is(err, ErrAway) {
			t.Fatalf("a write: got %v, want ErrAway", err)
		}
	}
	if n := asked.Load() - before; n > 0 {
		t.Errorf("Consul was asked %d times", n)
	}
	link.losing(nil)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- b.Follow(ctx) }()
	eventually(t, "Consul is back", func() bool { return !b.standing.away() })
	put(t, b, "revoked", "eve")
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
	if err := b.Close(); err != nil {
		t.Error(err)
	}
}
