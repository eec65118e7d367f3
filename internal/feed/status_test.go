package feed

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// Every item of which an older version is used has a problem that says why, and what to do.
func TestProblems(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name  string
		steps []step
		want  []string
	}{
		{"an invalid item", []step{"s1 full a: x=1 y=1", "s1 a: !x y=1"}, []string{"error Thing x (stale): invalid"}},
		{"an invalid item that was never valid", []step{"s1 full a: !x"}, []string{"error Thing x: invalid"}},
		{"an unreadable group", []step{"s1 full a: x=1", "s1 a: unreadable"}, []string{"error s1 (stale): unreadable"}},
		{"an unreadable group that never had items", []step{"s1 full a: unreadable"}, []string{"error s1: unreadable"}},
		{"a removal that is pending", []step{"s1 full a: x=1 y=1", "s1 a: y=1"}, nil},
		{"a removal beside an error", []step{"s1 full a: x=1 y=1", "s1 a: y=1 error", "wait 2s"}, []string{
			"error s1: odd",
			`warning Thing x (stale): removed from (x=1), but still active, because a of source s1, which defined it, has an error; fix that, or run "ashorectl sources accept-removals s1"`,
		}},
		{"a move into an unreadable group", []step{"s1 full a: x=1 y=1", "s1 a: y=1", "s1 b: unreadable", "wait 2s"}, []string{
			"error s1: unreadable",
			`warning Thing x (stale): removed from (x=1), but still active, because b of source s1, which may define it now, cannot be read; fix that, or run "ashorectl sources accept-removals s1"`,
		}},
		{"a move with a mistake", []step{"s1 full a: x=1 y=1", "s2 full", "s1 a: y=1", "s2 b: !x", "wait 2s"}, []string{
			`warning Thing x (stale): removed from (x=1), but still active, because b of source s2 defines an invalid version of it; fix that, or run "ashorectl sources accept-removals s1"`,
			"error Thing x (stale): invalid",
		}},
		{"a mass removal", []step{"s1 full a: x=1", "s1 full", "wait 2s"}, []string{
			`warning Thing x (stale): removed from (x=1), but still active, because source s1 lost all or most of its items at once; restore them, or run "ashorectl sources accept-removals s1"`,
		}},
		{"a mass removal while a group is unreadable", []step{"s1 full a: x=1", "s1 full", "s1 b: unreadable", "wait 2s"}, []string{
			"error s1: unreadable",
			`warning Thing x (stale): removed from (x=1), but still active, because source s1 lost all or most of its items at once, and b cannot be read; fix that, or run "ashorectl sources accept-removals s1"`,
		}},
		{"a source that is down", []step{
			"s1 full a: x=1",
			"down s1"}, []string{"warning s1 (stale): connection refused; its items stay active"}},
		{"a source that left the settings", []step{"s1 full a: x=1", "restart", "sources s2"}, []string{
			`warning s1 (stale): the source is not in the settings any more; its items (1) stay active until all required sources have delivered, or until you run "ashorectl sources accept-removals s1"`,
		}},
		{"a duplicate", []step{"s1 full a: x=1; b: x=2", "s2 full c: x=3"}, []string{
			"error Thing x: defined in (x=1) of source s1, which is used, and again in (x=2) of source s1, which is not; remove one of them",
			"error Thing x: defined in (x=1) of source s1, which is used, and again in (x=3) of source s2, which is not; remove one of them",
		}},
		{"a duplicate that is gone", []step{"s1 full a: x=1; b: x=2", "s1 b:"}, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, objectConfig, named("s1", "s2")...)
			w.run(c.steps...)
			want := strings.Join(append(c.want, ""), "\n")
			if diff := cmp.Diff(want, problemTexts(w.m)); diff != "" {
				t.Errorf("problems (-want +got):\n%s", diff)
			}
		})
	}
}

// A source without files is named once as the place of an object.
func TestPlaceIsSource(t *testing.T) {
	t.Parallel()
	w := newWorld(t, objectConfig, named("s1", "s2")...)
	w.run("s1 full a: x=1", "s2 full a: x=2")
	got := w.m.Problems(func(testItem) string { return "s1" })[0].Text
	const want = "defined in source s1, which is used, and again in s1 of source s2, which is not; remove one of them"
	if got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

// A problem keeps the time when it appeared while it is sent again, also on another line.
func TestProblemSince(t *testing.T) {
	t.Parallel()
	w := newWorld(t, objectConfig, named("s1")...)
	send := func(line int, text string) time.Duration {
		u := Update[testItem]{Group: "a", Problems: []Problem{{Severity: Error, Line: line, Text: text}}}
		w.apply(Batch[testItem]{Source: "s1", Full: true, Updates: []Update[testItem]{u}})
		since := w.m.Problems(nil)[0].Since.Sub(epoch)
		w.wait(time.Minute)
		return since
	}
	got := []time.Duration{send(1, "x"), send(2, "x"), send(2, "y"), send(2, "x")}
	if diff := cmp.Diff([]time.Duration{0, 0, 2 * time.Minute, 3 * time.Minute}, got); diff != "" {
		t.Errorf("the problem appeared after (-want +got):\n%s", diff)
	}
}

func TestStatus(t *testing.T) {
	t.Parallel()
	w := newWorld(t, objectConfig, SourceConfig{Name: "s1", Required: true}, SourceConfig{Name: "s2", Required: true},
		SourceConfig{Name: "s3", Required: true})
	w.wait(time.Minute)
	w.run("s1 full a: x=1 y=1; b: z=1", "down s2", "wait 1m", "down s2", "s1 a: !x; b:", "wait 1m", "up s2", "s2 full")
	want := []SourceStatus{
		{Name: "s1", Required: true, Synced: true, Items: 1, Problems: 1, Retained: 1, Stale: 1, LastUpdate: epoch.Add(2 * time.Minute)},
		{Name: "s2", Required: true, Synced: true, LastUpdate: epoch.Add(3 * time.Minute)},
		{Name: "s3", Required: true},
	}
	if diff := cmp.Diff(want, w.m.Status()); diff != "" {
		t.Errorf("status (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]string{"s3"}, w.m.Waiting()); diff != "" {
		t.Errorf("waiting (-want +got):\n%s", diff)
	}
	w.run("s2 full d: x=2")
	if s := w.m.Status()[1]; s.Problems != 1 {
		t.Errorf("s2 is %+v, want one problem: it defines x again", s)
	}
	w.run("s2 full", "down s2")
	if s := w.m.Status()[1]; s.Error != "connection refused" || !s.ErrorSince.Equal(w.now) || s.Problems != 1 {
		t.Errorf("s2 is %+v, want it down", s)
	}
	w.run("restart")
	if diff := cmp.Diff([]string{"s3"}, w.m.Waiting()); diff != "" {
		t.Errorf("waiting after a restart (-want +got):\n%s", diff)
	}
}

// More than 10 items that are retained for one reason have one problem in common.
func TestProblemInCommon(t *testing.T) {
	t.Parallel()
	for n, want := range map[int]int{10: 10, 11: 1, 500: 1} {
		w := newWorld(t, objectConfig, named("s1")...)
		w.apply(batch("s1", "full "+many("a", n)))
		w.apply(batch("s1", "full"))
		w.wait(time.Minute)
		problems := w.m.Problems(func(testItem) string { return "here" })
		if len(problems) != want {
			t.Errorf("%d items have %d problems, want %d", n, len(problems), want)
		}
		if text := fmt.Sprintf("%d items (Thing a000, Thing a001, Thing a002, ...) were removed, but still active", n); want == 1 && !strings.HasPrefix(problems[0].Text, text) {
			t.Errorf("the problem is %q, want %q at the start", problems[0].Text, text)
		}
	}
}

// Deleting 10,000 groups takes less than a second. The bound allows for a busy machine and -race;
// quadratic work takes longer.
func TestLarge(t *testing.T) {
	t.Parallel()
	const n = 10_000
	for name, last := range map[string]string{
		"10,000 groups deleted one by one":      removals("a", n),
		"10,000 groups deleted by a full batch": "full z: z=1",
		"10,000 groups deleted explicitly":      "explicit " + removals("a", n),
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, objectConfig, named("s1")...)
			w.apply(batch("s1", "full "+many("a", n)+"z: z=1"))
			b := batch("s1", last)
			start := time.Now()
			w.apply(b)
			w.wait(3 * time.Second)
			w.note(w.m.AcceptRemovals("s1", w.now))
			if took := time.Since(start); took > 5*time.Second {
				t.Errorf("it took %v", took)
			}
			w.run("want z=1")
		})
	}
}

// removals are updates that remove the groups of many.
func removals(prefix string, n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, "%s%03d:; ", prefix, i)
	}
	return b.String()
}
