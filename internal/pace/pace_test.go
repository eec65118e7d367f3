package pace

import (
	"strconv"
	"testing"
	"time"
)

// One actor may so often and no more, is told how often it might not when it may again, and holds nobody else up.
func TestActors(t *testing.T) {
	t.Parallel()
	var p Actors
	now := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	recorded := 0
	for range 2 * burst {
		if ok, _ := p.Take("a", now); ok {
			recorded++
		}
	}
	if recorded != burst {
		t.Errorf("%d were recorded, want %d", recorded, burst)
	}
	if ok, _ := p.Take("b", now); !ok {
		t.Error("another actor is held up")
	}
	now = now.Add(every)
	if ok, silent := p.Take("a", now); !ok || silent != burst {
		t.Errorf("after a while: %v, %d left out, want %d", ok, silent, burst)
	}
	if ok, _ := p.Take("a", now); ok {
		t.Error("one more is recorded")
	}
	if ok, _ := p.Take("a", now.Add(-time.Hour)); ok {
		t.Error("a clock that goes back lets it")
	}
	for i := range 2 * maxActors {
		p.Take(strconv.Itoa(i), now)
	}
	if len(p.actors) > maxActors {
		t.Errorf("%d actors are remembered", len(p.actors))
	}
}
