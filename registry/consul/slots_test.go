package consul

import (
	"testing"
	"time"
)

// A bound that shrank because Consul refused grows again when it refuses no more, and more slowly each time that this was too
// early.
func TestGrow(t *testing.T) {
	t.Parallel()
	now := time.Now()
	s := newSlots(100)
	step := func(after time.Duration, grown bool, want int) {
		t.Helper()
		now = now.Add(after)
		if got := s.grow(now); got != grown || s.connections != want {
			t.Errorf("after %s: %v and %d connections, want %v and %d", after, got, s.connections, grown, want)
		}
	}
	refuse := func(want int) {
		t.Helper()
		now = now.Add(2 * refusalGap)
		if s.refused(now); s.connections != want {
			t.Errorf("%d connections after a refusal, want %d", s.connections, want)
		}
	}
	step(time.Hour, false, 100)
	refuse(75)
	refuse(56)
	step(growAfter-time.Second, false, 56)
	step(time.Second, true, 70)
	step(growAfter/2, false, 70)
	step(growAfter/2, true, 87)
	refuse(65)
	step(growAfter, false, 65)
	step(growAfter, true, 81)
	step(2*growAfter, true, 100)
	step(24*time.Hour, false, 100)
	for range 20 {
		refuse(max(leastConnections, s.connections*3/4))
	}
	step(lastGrowth, true, leastConnections+leastConnections/4)
}

// Where there is room for all services, each has a connection at once, though one that has gone has not given its own back yet:
// nobody would tell who waits for one.
func TestRoomForAll(t *testing.T) {
	t.Parallel()
	s := newSlots(100)
	for _, step := range []struct {
		services int
		changed  bool
		want     bool
	}{{88, false, true}, {89, true, false}, {88, false, true}} {
		s.crowd(step.services, 1, false)
		s.mu.Lock()
		s.used = s.room // one of them of a service that has gone
		s.mu.Unlock()
		if _, ok := s.take(step.changed); ok != step.want {
			t.Errorf("with %d services and all connections taken: %v, want %v", step.services, ok, step.want)
		}
	}
}
