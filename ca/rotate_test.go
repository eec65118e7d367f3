package ca

import (
	"context"
	"crypto/x509"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/ashore-mesh/ashore/internal/record"
)

// During a rotation a machine is disconnected: whoever trusts only the old root, or only the new one,
// accepts workloads and the control plane; the old root goes when nobody needs it.
func TestRotation(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	m := h.move()
	old := m.Signer().Root
	changed := m.Changed(t.Context())
	day := noon.Add(24 * time.Hour)
	h.fact(Dependent{"shop/away", RootID(old), day.Add(time.Hour)})

	s, err := m.Rotate(t.Context(), RotateRequest{Actor: "user root (uid 0)"})
	if err != nil {
		t.Fatal(err)
	}
	select {
	case <-changed:
	default:
		t.Error("the bundle changed and nobody was told")
	}
	both, fresh := m.Bundle(), m.Signer().Root
	if len(both.Roots) != 2 || fresh.Equal(old) {
		t.Fatalf("after it began: %+v", s)
	}
	wait := []waiting{{"control plane", "requests", "requests from before the rotation are being answered",
		noon.Add(settling)}, {"workload", "shop/away", "its certificate is from the old root", day.Add(time.Hour)}}
	if d := cmp.Diff(wait, waits(s.Rotation.Waiting), cmp.AllowUnexported(waiting{})); d != "" ||
		!s.Rotation.Until.Equal(day.Add(time.Hour)) || s.Rotation.Count != 2 {
		t.Errorf("waiting until %s (-want +got):\n%s", s.Rotation.Until, d)
	}
	if _, err := m.Rotate(t.Context(), RotateRequest{}); !errors.Is(err, ErrRotate) || !strings.Contains(err.Error(),
		"a rotation is in progress since 2026-11-21T12:00:00Z; --force retires the old root at once") {
		t.Errorf("began twice: %v", err)
	}
	for name, root := range map[string]*x509.Certificate{"old": old, "new": fresh} {
		if err := believes(t, m.Signer(), noon, root); err != nil {
			t.Errorf("who trusts the %s root does not believe a workload: %v", name, err)
		}
		if err := joins(t, m, RootID(root), "localhost", noon); err != nil {
			t.Errorf("who knows the %s root does not believe the control plane: %v", name, err)
		}
	}

	// The machine is waited for until the end of its grace. It renewed before that: nobody needs the
	// old root.
	h.later(m, 24*time.Hour)
	if s = show(t, m); s.Rotation.Count != 1 || len(m.Bundle().Roots) != 2 {
		t.Fatalf("after a day: %+v", s.Rotation)
	}
	h.fact(Dependent{"shop/away", RootID(fresh), day.Add(25 * time.Hour)})
	h.later(m, settling)
	if s = show(t, m); !s.Rotation.Since.IsZero() || len(m.Bundle().Roots) != 1 || !m.Bundle().Roots[0].Equal(fresh) ||
		len(m.Signer().Intermediates) != 1 {
		t.Fatalf("at the end: %+v, %d roots", s.Rotation, len(m.Bundle().Roots))
	}
	if err := joins(t, m, RootID(old), "localhost", day); err == nil {
		t.Error("the old root is presented still")
	}
	if again := h.move(); again.Bundle().ID != m.Bundle().ID || !again.Signer().Cert.Equal(m.Signer().Cert) {
		t.Error("a restart made another authority")
	}
	want := []string{"begin user root (uid 0)", "failed begin", "retire ashored"}
	if d := cmp.Diff(want, h.audited("ca.rotate")); d != "" {
		t.Errorf("audited (-want +got):\n%s", d)
	}
}

// What an operator asks for is one line of the audit log, with his reason: of the step that it did,
// or of what it came to. A forced end has how many were waited for.
func TestRotationAudited(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	m := h.move()
	old := RootID(m.Signer().Root)
	h.fact(Dependent{"w", old, noon.Add(time.Hour)})
	for _, force := range []bool{true, false, false, true} {
		_, _ = m.Rotate(t.Context(), RotateRequest{Actor: "op", Reason: "yearly", Force: force}) // the log tells
	}
	if s := show(t, m); !s.Rotation.Since.IsZero() || RootID(m.Signer().Root) == old {
		t.Errorf("afterwards %+v", s)
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	var got []string
	for _, e := range h.events {
		if e.Action == "ca.rotate" {
			reason, _, _ := strings.Cut(e.Reason, " since")
			got = append(got, strings.Join([]string{e.Actor, e.Outcome, e.Details["step"], e.Details["forced"], reason},
				"|"))
		}
	}
	want := []string{
		"op|failed|retire||yearly: cannot rotate: no rotation is in progress, there is nothing to force",
		"op||begin||yearly",
		"op|failed|begin||yearly: cannot rotate: a rotation is in progress",
		"op||retire|2|yearly",
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
}

// When nobody can say who depends on what, a rotation waits.
func TestRotationWithoutIndex(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	m := h.move()
	if _, err := m.Rotate(t.Context(), RotateRequest{}); err != nil {
		t.Fatal(err)
	}
	h.config.Dependents = func(context.Context) ([]Dependent, error) { return nil, errors.New("the index cannot be read") }
	again := h.move()
	h.later(again, time.Hour)
	if !again.own.state.rotating() || again.trouble != "the index cannot be read" {
		t.Errorf("state %+v, trouble %q", again.own.state, again.trouble)
	}
	if _, err := again.Show(t.Context()); err == nil {
		t.Error("shown without the index")
	}
}

// killed is how a test ends a manager in the midst of a change.
type killed struct{}

// hooked is a store that tells of each commit before and after it.
type hooked struct {
	record.Store
	at func(what string)
}

func (s *hooked) Commit(ctx context.Context, writes ...record.Write) error {
	s.at("before a commit")
	defer s.at("after a commit")
	return s.Store.Commit(ctx, writes...)
}

// until runs f and ends it before or after a commit, the nth place of both. It says whether f came
// to its end, and what came next.
func until(n int, store *hooked, f func()) (ended bool, at string) {
	count := 0
	store.at = func(what string) {
		if count++; count == n {
			at = what
			panic(killed{})
		}
	}
	defer func() {
		if v := recover(); v != nil {
			if _, ok := v.(killed); !ok {
				panic(v)
			}
		}
	}()
	f()
	return true, ""
}

// ashored may be killed before and after any commit: it starts again, with a root that everybody
// trusts, and a rotation that was begun comes to its end.
func TestKilled(t *testing.T) {
	t.Parallel()
	stories := map[string]struct {
		before func(t *testing.T, h *house)
		story  func(ctx context.Context, h *house, m *Manager)
	}{
		"first start": {func(*testing.T, *house) {}, func(ctx context.Context, _ *house, m *Manager) { _ = m.start(ctx) }},
		"rotation": {func(_ *testing.T, h *house) { h.move() }, func(ctx context.Context, h *house, m *Manager) {
			if m.start(ctx) == nil {
				_, _ = m.Rotate(ctx, RotateRequest{})
				h.later(m, settling)
			}
		}},
	}
	for name, tc := range stories {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var places []string
			for n := 1; ; n++ {
				h := newHouse(t)
				tc.before(t, h)
				roots := h.roots()
				config, store := h.config, &hooked{Store: h.records}
				config.Records = store
				m, err := newManager(config)
				if err != nil {
					t.Fatal(err)
				}
				ended, at := until(n, store, func() { tc.story(t.Context(), h, m) })
				if ended {
					break
				}
				places = append(places, at)
				h.survives(t, at, roots)
			}
			if len(places) < 2 {
				t.Errorf("it was killed at %q alone", places)
			}
			t.Logf("killed at %d places: %s", len(places), strings.Join(places, ", "))
		})
	}
}

// roots are those that everybody trusts as far as the records say.
func (h *house) roots() []*x509.Certificate {
	st, version, err := recordTable[State]{store: h.records, name: "ca"}.get(h.t.Context(), stateName)
	if err != nil || version == "" {
		return nil
	}
	b, err := st.bundle()
	if err != nil {
		h.t.Fatal(err)
	}
	return b.Roots
}

// survives starts again after a kill at a place, and leads what was begun to its end.
func (h *house) survives(t *testing.T, at string, trusted []*x509.Certificate) {
	t.Helper()
	now := h.config.Now()
	m, err := NewManager(t.Context(), h.config)
	if err != nil {
		t.Fatalf("killed %s: %v", at, err)
	}
	// Who knows only the roots of before the kill believes what is signed now, unless all has moved
	// on.
	if len(trusted) > 0 && m.Bundle().has(RootID(trusted[0])) {
		if err := believes(t, m.Signer(), now, trusted...); err != nil {
			t.Errorf("killed %s, rotating %t: %v", at, m.own.state.rotating(), err)
		}
	}
	if err := believes(t, m.Signer(), now, m.Bundle().Roots...); err != nil {
		t.Errorf("killed %s: %v", at, err)
	}
	for range 2 {
		h.later(m, settling)
	}
	if s := show(t, m); !s.Rotation.Since.IsZero() || len(s.Problems) > 0 {
		t.Errorf("killed %s: rotation %+v, problems %q", at, s.Rotation, s.Problems)
	}
	if _, err := m.Rotate(t.Context(), RotateRequest{}); err != nil {
		t.Errorf("killed %s, and no rotation afterwards: %v", at, err)
	}
	h.later(m, settling)
	again := h.move()
	if again.Bundle().ID != m.Bundle().ID || again.own.dir.has(nextRootFile) {
		t.Errorf("killed %s: the folder is not tidy", at)
	}
}

// Replicas agree: one that has an intermediate and no root's key takes over what another decides,
// and says that it does not sign with the new root; one that has neither is told what to do.
func TestReplicas(t *testing.T) {
	t.Parallel()
	a, b := newHouse(t), newHouse(t)
	b.config.Records = a.records
	first := a.move()
	if _, err := NewManager(t.Context(), b.config); err == nil ||
		!strings.Contains(err.Error(),
			"or put an intermediate that is signed by this root, key and certificate, into intermediate-key.pem") {
		t.Fatalf("without any key: %v", err)
	}
	root, err := first.activeKey()
	must(t, err)
	made := &pair{key: NewKey()}
	made.cert, err = root.intermediate(b.config.TrustDomain, made.key.Public(), noon)
	must(t, err)
	must(t, folder(b.config.Dir).writePair(intermediateFile, made))
	second := b.move()
	if first.Bundle().ID != second.Bundle().ID || first.Signer().Cert.Equal(second.Signer().Cert) {
		t.Error("replicas do not trust the same, or sign with one key")
	}

	waits := Dependent{"w", RootID(first.Signer().Root), noon.Add(time.Hour)}
	a.fact(waits)
	b.fact(waits)
	if _, err := first.Rotate(t.Context(), RotateRequest{}); err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	changed := second.Changed(ctx)
	ended := make(chan error)
	go func() { ended <- second.Run(ctx) }()
	<-changed
	if second.Bundle().ID != first.Bundle().ID || len(second.Bundle().Roots) != 2 {
		t.Error("the other replica's bundle did not arrive")
	}
	stop()
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	if !strings.Contains(second.own.overdue, "its key is not in") || second.Signer() == nil || !second.own.late() {
		t.Errorf("problem: %q", second.own.overdue)
	}
	if _, err := first.Rotate(t.Context(), RotateRequest{Force: true}); err != nil {
		t.Fatal(err)
	}
	second.look(t.Context())
	if second.Bundle().ID != first.Bundle().ID || second.Bundle().has(RootID(second.Signer().Root)) {
		t.Error("the replica that cannot sign below the new root trusts the old one")
	}
}
