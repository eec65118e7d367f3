package ca

import (
	"fmt"
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

// rotating is a state in which a rotation from root a to root b is at a step.
func rotating(step string) State {
	s := State{Step: StepDistribute, Since: noon.Add(-time.Hour), Active: "a", Other: "b",
		Roots: map[string][]byte{"a": {1}, "b": {2}}, Cross: []byte{3}}
	for s.Step != step {
		s = s.done(s.Since)
	}
	return s
}

// A step is done when nobody depends on the one before; else it names who does, why, and until when
// at the latest.
func TestNext(t *testing.T) {
	t.Parallel()
	both, in := bundleID([]string{"a", "b"}), func(d time.Duration) time.Time { return noon.Add(d) }
	for _, tc := range []struct {
		name  string
		step  string
		facts Facts
		want  string
		wait  []waiting
	}{
		{"nothing goes on", None, Facts{Connected: []ProxyBundle{{"p", "old"}}}, None, nil},
		{"nobody there", StepDistribute, Facts{}, StepActivate, nil},
		{"a proxy has not acknowledged", StepDistribute, Facts{Connected: []ProxyBundle{{"p", "old"}, {"q", both}}}, StepDistribute,
			[]waiting{{"proxy", "p", "connected, and has not acknowledged the bundle with both roots", time.Time{}}}},
		{"all have acknowledged", StepDistribute, Facts{Connected: []ProxyBundle{{"p", both}}, Leaves: []LeafFact{{"w", "a", both, in(time.Hour)}}}, StepActivate, nil},
		{"a machine is away", StepDistribute, Facts{Leaves: []LeafFact{{"w", "a", "old", in(2 * time.Hour)}}}, StepDistribute,
			[]waiting{{"workload", "w", "has a valid certificate and not the bundle with both roots",
				in(2 * time.Hour)}}},
		// Its certificate has ended: its peers refuse it anyway, and the cross-signed root leads it
		// back.
		{"a machine was away too long", StepDistribute, Facts{Grace: time.Hour, Leaves: []LeafFact{{"w", "a", "old", in(0)}}}, StepActivate, nil},
		{"a leaf from the old root", StepActivate, Facts{Leaves: []LeafFact{{"w", "a", both, in(time.Hour)}}}, StepActivate,
			[]waiting{{"workload", "w", "its certificate is from the old root", in(time.Hour)}}},
		{"all leaves are from the new root", StepActivate, Facts{Grace: time.Hour, Leaves: []LeafFact{{"w", "b", both, in(time.Hour)}}}, None, nil},
		{"within the grace of its last leaf", StepActivate, Facts{Grace: time.Hour, Leaves: []LeafFact{{"w", "a", both, in(-time.Minute)}}}, StepActivate,
			[]waiting{{"workload", "w", "its certificate is from the old root", in(59 * time.Minute)}}},
		{"after the grace", StepActivate, Facts{Grace: time.Hour, Leaves: []LeafFact{{"w", "a", both, in(-time.Hour)}}}, None, nil},
		{"a leaf of the new root, an old bundle", StepActivate, Facts{Grace: time.Hour, Leaves: []LeafFact{{"w", "b", "old", in(time.Hour)}}}, StepActivate,
			[]waiting{{"workload", "w", "does not have the new root", in(2 * time.Hour)}}},
		{"a leaf of nobody knows which root", StepActivate, Facts{Leaves: []LeafFact{{"w", "", both, in(time.Hour)}}}, StepActivate,
			[]waiting{{"workload", "w", "its certificate is from the old root", in(time.Hour)}}},
		{"a proxy came with an old bundle", StepActivate, Facts{Connected: []ProxyBundle{{"p", ""}}}, StepActivate,
			[]waiting{{"proxy", "p", "connected, and has not acknowledged the bundle with both roots", time.Time{}}}},
		// A certificate that was being signed by the old root is in no ledger yet.
		{"a moment after", StepActivate, Facts{Grace: -1}, StepActivate, []waiting{{"control plane", "requests", "what was asked for before this step is answered", in(time.Second)}}},
		{"in order", StepDistribute, Facts{Connected: []ProxyBundle{{"q", ""}, {"p", ""}}, Leaves: []LeafFact{{"w", "a", "", in(1)}, {"v", "a", "", in(1)}}}, StepDistribute,
			[]waiting{
				{"proxy", "p", "connected, and has not acknowledged the bundle with both roots", time.Time{}},
				{"proxy", "q", "connected, and has not acknowledged the bundle with both roots", time.Time{}},
				{"workload", "v", "has a valid certificate and not the bundle with both roots", in(1)},
				{"workload", "w", "has a valid certificate and not the bundle with both roots", in(1)},
			}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			from := rotating(StepDistribute)
			if tc.step == None {
				from = State{Active: "a", Roots: map[string][]byte{"a": {1}}}
			} else {
				from = rotating(tc.step)
			}
			if tc.facts.Grace < 0 {
				from.Since = noon.Add(time.Second - settling)
			}
			to, wait := from, from.waiting(tc.facts, noon)
			if from.Step != None && len(wait) == 0 {
				to = from.done(noon)
			}
			if to.Step != tc.want {
				t.Errorf("step %q, want %q", to.Step, tc.want)
			}
			if d := cmp.Diff(tc.wait, waits(wait), cmp.AllowUnexported(waiting{})); d != "" {
				t.Errorf("waiting (-want +got):\n%s", d)
			}
		})
	}
}

// Whatever the facts, what signs is trusted by everybody, and a root that is left was trusted
// beside the other first.
func TestRotationLaws(t *testing.T) {
	t.Parallel()
	s := rotating(StepDistribute)
	var seen []string
	for range 3 {
		trusted := s.trusted()
		if trusted[0] != s.Active {
			t.Errorf("%s signs, %v are trusted", s.Active, trusted)
		}
		seen = append(seen, fmt.Sprintf("%s:%s:%v", s.Step, s.Active, trusted))
		s = s.done(s.Since.Add(settling))
	}
	want := []string{"distribute:a:[a b]", "activate:b:[b a]", ":b:[b]"}
	if d := cmp.Diff(want, seen); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
	if len(s.Roots) != 1 || s.Cross != nil || s.Other != "" {
		t.Errorf("afterwards %+v", s)
	}
}
