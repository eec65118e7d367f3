package feed

import (
	"testing"
	"time"
)

// A source that loses its origin keeps what it said, and says so as a problem until it is in touch again.
func TestStanding(t *testing.T) {
	t.Parallel()
	m := NewMerger([]string{"consul:dc1"}, func(s string) string { return s })
	begin := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	m.Apply(Batch[string]{Source: "consul:dc1", Full: true, Updates: []Update[string]{{Group: "g", Items: []string{"web"}}}}, begin)
	if got := m.Problems(nil); len(got) != 0 {
		t.Errorf("problems of a source that is in touch: %v", got)
	}
	if touched := m.Apply(Batch[string]{Source: "consul:dc1", Standing: &Standing{Error: "cannot connect", Since: begin, Lag: time.Second}}, begin.Add(time.Minute)); len(touched) != 0 {
		t.Errorf("an outage changes %v", touched)
	}
	s := m.Sources()[0]
	if !s.Last.Equal(begin) || !s.StaleSince().Equal(begin) {
		t.Errorf("an outage counts as a change: %+v", s)
	}
	if s.Items != 1 || !s.Synced || s.Problems != 1 || s.Error != "cannot connect" || !s.Since.Equal(begin) || s.Lag != time.Second {
		t.Errorf("during the outage: %+v", s)
	}
	if got := m.Problems(nil); len(got) != 1 || !got[0].Stale || got[0].Source != "consul:dc1" || got[0].Text != "cannot connect" {
		t.Errorf("problems during the outage: %v", got)
	}
	m.Apply(Batch[string]{Source: "consul:dc1", Updates: []Update[string]{{Group: "h", Items: []string{"db"}}}}, begin)
	if m.Sources()[0].Error == "" {
		t.Error("a change alone ends the outage")
	}
	m.Apply(Batch[string]{Source: "consul:dc1", Standing: &Standing{Since: begin}}, begin)
	if s := m.Sources()[0]; !s.StaleSince().IsZero() || s.Error != "" || s.Problems != 0 || s.Items != 2 || s.LastError != "cannot connect" || !s.LastErrorAt.Equal(begin) {
		t.Errorf("after the outage: %+v", s)
	}
	m.Apply(Batch[string]{Source: "consul:dc1", Standing: &Standing{Error: "cannot connect; its content stands in", Cause: "cannot connect", Since: begin}}, begin)
	m.Apply(Batch[string]{Source: "consul:dc1", Standing: &Standing{Since: begin}}, begin)
	if s := m.Sources()[0]; s.LastError != "cannot connect" {
		t.Errorf("after the outage its content still stands in: %q", s.LastError)
	}
	m.Apply(Batch[string]{Source: "consul:dc1", Full: true, Standing: &Standing{Error: "too old, and gone", Since: begin}}, begin)
	if got := m.Problems(nil); len(got) != 1 || got[0].Stale {
		t.Errorf("nothing of it is in use: %v", got)
	}
}

// What a change took is from when it was noticed, and before that what the source says.
func TestLag(t *testing.T) {
	t.Parallel()
	m := NewMerger([]string{"a"}, func(s string) string { return s })
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	for _, tc := range []struct {
		b    Batch[string]
		want time.Duration
	}{
		{Batch[string]{Full: true, Since: now.Add(-3 * time.Second)}, 3 * time.Second},
		{Batch[string]{Updates: []Update[string]{{Group: "g"}}, Since: now.Add(-time.Millisecond)}, time.Millisecond},
		{Batch[string]{Standing: &Standing{Lag: time.Second}, Since: now.Add(-time.Hour)}, time.Second + time.Millisecond},
		{Batch[string]{Updates: []Update[string]{{Group: "g"}}}, time.Second + time.Millisecond},
		{Batch[string]{Updates: []Update[string]{{Group: "g"}}, Since: now.Add(time.Minute)}, time.Second},
	} {
		tc.b.Source = "a"
		m.Apply(tc.b, now)
		if got := m.Sources()[0].Lag; got != tc.want {
			t.Errorf("%+v: %v, want %v", tc.b, got, tc.want)
		}
	}
}

// What keeps newer content of the oldest part from being in use is told with how old that is.
func TestWhy(t *testing.T) {
	t.Parallel()
	m := NewMerger([]string{"a"}, func(s string) string { return s })
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	stale := func(group string, since time.Time) Update[string] {
		return Update[string]{Group: group, Items: []string{group}, Problems: []Problem{
			{Severity: Warning, Object: group, Text: "has a warning"}, {Severity: Warning, Object: group, Text: "is away", Stale: true, Since: since},
		}}
	}
	m.Apply(Batch[string]{Source: "a", Full: true, Updates: []Update[string]{stale("x", now), stale("z", now.Add(-time.Hour)), stale("y", now.Add(-time.Hour)), {Group: "w", Items: []string{"w"}}}}, now)
	if s := m.Sources()[0]; s.Stale != 3 || s.Why != "y: is away" || !s.AsOf.Equal(now.Add(-time.Hour)) {
		t.Errorf("got %+v", s)
	}
	m.Apply(Batch[string]{Source: "a", Full: true, Updates: []Update[string]{{Group: "x", Items: []string{"x"}}}}, now)
	if s := m.Sources()[0]; s.Stale != 0 || s.Why != "" {
		t.Errorf("all is well: %+v", s)
	}
}
