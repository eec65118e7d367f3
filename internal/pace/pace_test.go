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

// What an actor is charged it has to make up for before it may again, and a burst and a pace of one's own count.
func TestCharge(t *testing.T) {
	t.Parallel()
	p := Actors{Burst: 4, Every: time.Second}
	now := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	take := func(want bool) {
		t.Helper()
		if may, _ := p.Take("a", now); may != want {
			t.Errorf("at %s it may: %v, want %v", now.Format(time.TimeOnly), may, want)
		}
	}
	take(true)
	p.Charge("a", 5, now) // two more than are left
	take(false)
	now = now.Add(2 * time.Second)
	take(false)
	now = now.Add(time.Second)
	take(true)
	take(false)
	now = now.Add(time.Hour)
	for range 4 {
		take(true)
	}
	take(false)
	if may, _ := p.Take("b", now); !may {
		t.Error("another actor is held up")
	}
}
