package ca

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/ashore-mesh/ashore/internal/admin"
)

// waiting is an admin.Waiting, shorter to write.
type waiting struct {
	kind, name, reason string
	until              time.Time
}

func waits(list []admin.Waiting) (out []waiting) {
	for _, w := range list {
		out = append(out, waiting{w.Kind, w.Name, w.Reason, w.Until})
	}
	return out
}

// A rotation ends when nobody needs the old root; else it names who does, and until when at the
// latest.
func TestWaiting(t *testing.T) {
	t.Parallel()
	const reason = "its certificate is from the old root"
	in := func(d time.Duration) time.Time { return noon.Add(d) }
	for _, tc := range []struct {
		name  string
		began time.Duration // before noon
		all   []Dependent
		want  []waiting
	}{
		{"nobody there", time.Hour, nil, nil},
		{"a leaf from the old root", time.Hour, []Dependent{{"w", "a", in(time.Hour)}},
			[]waiting{{"workload", "w", reason, in(time.Hour)}}},
		{"all leaves are from the new root", time.Hour, []Dependent{{"w", "b", in(time.Hour)}}, nil},
		{"can no longer renew", time.Hour, []Dependent{{"w", "a", in(0)}}, nil},
		{"a leaf of an unknown root", time.Hour, []Dependent{{"w", "", in(time.Hour)}},
			[]waiting{{"workload", "w", reason, in(time.Hour)}}},
		// A certificate that was being signed by the old root is in no index yet.
		{"a moment after", settling - time.Second, nil, []waiting{{"control plane", "requests",
			"requests from before the rotation are being answered", in(time.Second)}}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			s := State{Since: noon.Add(-tc.began), Active: "b", Old: "a"}
			got := waits(s.waiting(tc.all, noon))
			if d := cmp.Diff(tc.want, got, cmp.AllowUnexported(waiting{})); d != "" {
				t.Errorf("waiting (-want +got):\n%s", d)
			}
		})
	}
}

// In the end only the new root is there, and trusted.
func TestRetired(t *testing.T) {
	t.Parallel()
	s := State{Active: "b", Old: "a", Roots: map[string][]byte{"a": {1}, "b": {2}}, Cross: []byte{3}}
	if d := cmp.Diff([]string{"b", "a"}, s.trusted()); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
	if d := cmp.Diff(State{Since: noon, Active: "b", Roots: map[string][]byte{"b": {2}}}, s.retired(noon)); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
}
