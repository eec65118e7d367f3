package ca

import (
	"testing"
	"time"
)

// A clock is believed once it has gone as time does for an hour; one that leaps, either way, is
// doubted anew.
func TestSteady(t *testing.T) {
	t.Parallel()
	var s steady
	at, off := noon, time.Duration(0)
	for i, step := range []struct {
		passes, leaps time.Duration
		want          bool
	}{
		{0, 0, false},
		{30 * time.Minute, 10 * time.Second, false},
		{30 * time.Minute, 0, true},
		{10 * time.Minute, 10000 * time.Hour, false},
		{59 * time.Minute, 0, false},
		{time.Minute, 0, true},
		{10 * time.Minute, -10000 * time.Hour, false},
		{time.Hour, 0, true},
	} {
		at, off = at.Add(step.passes), off+step.leaps
		if got := s.look(at.Add(off), at); got != step.want {
			t.Errorf("look %d: %v, want %v", i+1, got, step.want)
		}
	}
}
