package ratelimit

import (
	"fmt"
	"testing"
	"time"
)

var noon = time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)

// allowed takes events of a key until one is not allowed, and counts them.
func allowed(l *Limiter, key string, now time.Time) int {
	n := 0
	for {
		if ok, _ := l.Allow(key, now); !ok {
			return n
		}
		n++
	}
}

func TestAllow(t *testing.T) {
	t.Parallel()
	l := Limiter{Burst: 3, Every: 2 * time.Second}
	for _, step := range []struct {
		key   string
		after time.Duration
		want  int
	}{
		{"a", 0, 3},
		{"b", 0, 3},
		{"a", 0, 0},
		{"a", time.Second, 0},
		{"a", 4 * time.Second, 2},
		{"a", 2 * time.Second, 0}, // the clock was set back
		{"a", time.Hour, 3},
	} {
		if got := allowed(&l, step.key, noon.Add(step.after)); got != step.want {
			t.Errorf("%s after %s: got %d events, want %d", step.key, step.after, got, step.want)
		}
	}
}

func TestDefaults(t *testing.T) {
	t.Parallel()
	var l Limiter
	if got := allowed(&l, "a", noon); got != 50 {
		t.Errorf("got %d events at once, want 50", got)
	}
	if got := allowed(&l, "a", noon.Add(20*time.Second)); got != 2 {
		t.Errorf("got %d events after 20s, want 2", got)
	}
}

func TestDropped(t *testing.T) {
	t.Parallel()
	l := Limiter{Burst: 1, Every: time.Minute}
	for _, step := range []struct {
		after   time.Duration
		ok      bool
		dropped int
	}{
		{0, true, 0}, {0, false, 0}, {time.Second, false, 0}, {time.Minute, true, 2}, {2 * time.Minute, true, 0},
	} {
		if ok, dropped := l.Allow("a", noon.Add(step.after)); ok != step.ok || dropped != step.dropped {
			t.Errorf("after %s: got %v, %d dropped, want %v, %d", step.after, ok, dropped, step.ok, step.dropped)
		}
	}
}

func TestRemembersALimitedNumberOfKeys(t *testing.T) {
	t.Parallel()
	l := Limiter{Burst: 1, Every: time.Hour}
	for i := range maxKeys {
		l.Allow(fmt.Sprint(i), noon)
	}
	if !l.Exhausted("0", noon) {
		t.Error("a key was forgotten too early")
	}
	l.Allow("one more", noon)
	if len(l.byKey) > maxKeys || !l.Exhausted("one more", noon) {
		t.Errorf("%d keys are remembered, or the last is not", len(l.byKey))
	}
}

func TestExhausted(t *testing.T) {
	t.Parallel()
	l := Limiter{Burst: 2, Every: time.Second}
	for range 2 {
		if l.Exhausted("a", noon) {
			t.Error("exhausted before the burst")
		}
		l.Allow("a", noon)
	}
	if !l.Exhausted("a", noon) || l.Exhausted("a", noon.Add(time.Second)) {
		t.Error("not exhausted after the burst, or still a second later")
	}
	if l.Exhausted("b", noon); len(l.byKey) != 1 {
		t.Error("asking about a key remembers it")
	}
}
