package ca

import (
	"context"
	"errors"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ashore-mesh/ashore/internal/audit"
	"github.com/ashore-mesh/ashore/internal/record"
)

// states are how a manager tells of the others, by their names.
func states(t *testing.T, m *Manager) map[string]ReplicaState {
	t.Helper()
	out := map[string]ReplicaState{}
	for _, r := range show(t, m).Replicas {
		out[r.Name] = r.State
	}
	return out
}

// asks has a house of one more replica ask while nobody answers.
func (w *town) asks(name, token string) *house {
	w.t.Helper()
	h := w.another(name, token)
	ctx, cancel := context.WithTimeout(w.t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, err := NewManager(ctx, h.config); !errors.Is(err, context.DeadlineExceeded) {
		w.t.Fatalf("nobody answers: %v", err)
	}
	return h
}

// refused has a replica by that name be refused, and returns its house.
func (w *town) refused(name string) *house {
	w.t.Helper()
	h := w.asks(name, w.file(w.forge()))
	w.look()
	return h
}

// look has the first house look until there is nothing to do any more.
func (w *town) look() {
	for range 3 {
		w.first.later(w.m, 0)
	}
}

// Each other replica is told of with whether it is there, whatever the clocks of others do, and who
// keeps asking is heard of.
func TestReplicaStates(t *testing.T) {
	t.Parallel()
	w, h, two := settledTown(t)
	asker := w.asks("three", w.token())
	want := func(what string, want map[string]ReplicaState) {
		t.Helper()
		w.look()
		got := states(t, w.m)
		for name, s := range want {
			if got[name] != s {
				t.Errorf("%s: %s is %q, want %q", what, name, got[name], s)
			}
		}
	}
	h.later(two, 0) // it has no root's key
	if got := states(t, two); got["one"] != ReplicaServing || got["three"] != ReplicaAsking {
		t.Errorf("at first: %v", got)
	}
	h.later(two, 2*askingFor)
	if got := states(t, two); got["one"] != ReplicaGone || got["three"] != ReplicaGone {
		t.Errorf("nobody was heard of: %v", got)
	}
	asker.later(nil, 2*askingFor)
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, err := NewManager(ctx, asker.config); !errors.Is(err, context.DeadlineExceeded) {
		t.Fatal(err)
	}
	h.later(two, 0)
	if got := states(t, two); got["three"] != ReplicaAsking {
		t.Errorf("it asks on: %v", got)
	}
	w.first.later(nil, 2*askingFor)
	w.refused("four")
	want("refused", map[string]ReplicaState{"two": ReplicaServing, "four": ReplicaRefused})
	w.first.later(w.m, 2*askingFor)
	want("nobody was heard of", map[string]ReplicaState{"two": ReplicaGone, "four": ReplicaRefused})
	h.later(two, 2*askingFor)
	w.first.later(w.m, 0)
	want("heard of again", map[string]ReplicaState{"two": ReplicaServing})
	w.m.own.replica.alive = func(string) bool { return false }
	want("who knows says that nobody is alive", map[string]ReplicaState{"two": ReplicaGone})
	w.m.own.replica.alive = func(id string) bool { return id == two.own.replica.id }
	w.first.later(w.m, 2*askingFor)
	want("who knows says that it is alive", map[string]ReplicaState{"two": ReplicaServing})
}

// A replica of a release that does not tell when it was there is not taken to be gone because
// nobody has heard of it: it serves for as long as its intermediate is valid, and is not forgotten.
func TestReplicaOlder(t *testing.T) {
	t.Parallel()
	w, _, two := settledTown(t)
	w.m.own.replica.alive = func(string) bool { return false }
	r := two.own.replica.record
	r.Seen = time.Time{}
	if err := two.own.writeReplica(t.Context(), two.ReplicaID(), r, record.Any); err != nil {
		t.Fatal(err)
	}
	w.first.later(w.m, intermediateLife-time.Hour)
	if got := show(t, w.m).Replicas; len(got) != 1 || got[0].State != ReplicaServing || !got[0].Seen.IsZero() ||
		!strings.Contains(got[0].Reason, "does not tell") {
		t.Errorf("it has an intermediate: %+v", got)
	}
	if _, err := w.m.ForgetReplica(t.Context(), "two",
		"", "op"); !errors.Is(err, ErrForgetReplica) || !strings.Contains(err.Error(), "older release") {
		t.Errorf("it has an intermediate, and is forgotten: %v", err)
	}
	w.first.later(w.m, 2*time.Hour)
	if got := states(t, w.m); got["two"] == ReplicaServing {
		t.Errorf("its intermediate has ended: %v", got)
	}
}

// Who serves says now and then that it is there, and not at each look.
func TestReplicaSeen(t *testing.T) {
	t.Parallel()
	_, h, two := settledTown(t)
	key := record.Key{Table: table, Name: replicaRecords + two.own.replica.id}
	version := func() string {
		t.Helper()
		r, err := h.records.Get(t.Context(), key)
		if err != nil {
			t.Fatal(err)
		}
		return r.Version
	}
	h.later(two, 0)
	before := version()
	h.later(two, idlePace-time.Second)
	if version() != before {
		t.Error("it is written too often")
	}
	h.later(two, time.Second)
	if version() == before {
		t.Error("it is not written anew")
	}
}

// watched are records that look on while something is written.
type watched struct {
	record.Store
	look func()
}

func (s watched) Commit(ctx context.Context, writes ...record.Write) error {
	s.look()
	return s.Store.Commit(ctx, writes...)
}

// While the records are told that this replica is there nobody waits: they may hang.
func TestReplicaSeenWaits(t *testing.T) {
	t.Parallel()
	_, h, _ := settledTown(t)
	var m *Manager
	wrote := 0
	h.config.Records = watched{h.records, func() {
		if m == nil {
			return // it starts
		}
		if wrote++; !m.mu.TryLock() {
			t.Error("show and rotate would wait for the records")
			return
		}
		m.mu.Unlock()
	}}
	m = h.move()
	h.later(m, 0)
	wrote = 0
	h.later(m, idlePace)
	h.later(m, 0)
	if wrote != 1 {
		t.Errorf("%d writes, want 1", wrote)
	}
}

// What was refused, or was never answered, is forgotten when nobody has asked with it for long:
// also when it had come back before.
func TestReplicaRefusedEnds(t *testing.T) {
	t.Parallel()
	w := newTown(t)
	there := func() bool { return len(show(t, w.m).Replicas) > 0 }
	for range 2 {
		w.refused("late")
		w.first.later(w.m, replicaKept-time.Minute)
		if !there() {
			t.Fatal("it was forgotten early")
		}
		w.first.later(w.m, 2*time.Minute)
		w.look()
		if there() {
			t.Fatal("it is not forgotten")
		}
	}
	h := w.refused("back")
	w.first.later(w.m, replicaKept+time.Minute)
	for range 2 { // the same one comes back twice
		h.later(nil, w.m.config.Now().Sub(h.config.Now()))
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		if _, err := NewManager(ctx, h.config); err == nil {
			t.Fatal("it was let in")
		}
		cancel()
		w.look()
		if !there() {
			t.Fatal("it is there and not listed")
		}
		w.first.later(w.m, replicaKept+time.Minute)
		w.look()
		if there() {
			t.Fatal("it is listed for ever")
		}
	}
}

// A replica that is gone is forgotten by an operator, one that serves is not; a rotation waits for
// it no longer, and one that is there all the same is listed again.
func TestForgetReplica(t *testing.T) {
	t.Parallel()
	w, h, two := settledTown(t)
	forget := func(what string) error {
		t.Helper()
		_, err := w.m.ForgetReplica(t.Context(), what, "why", "op")
		return err
	}
	if err := forget("two"); !errors.Is(err, ErrForgetReplica) || !strings.Contains(err.Error(), "alive and serves") {
		t.Errorf("one that serves: %v", err)
	}
	if err := forget("one"); !errors.Is(err, ErrForgetReplica) {
		t.Errorf("the one that is asked: %v", err)
	}
	if err := forget("nobody"); !errors.Is(err, ErrNotFound) {
		t.Errorf("nobody: %v", err)
	}
	w.refused("twin (10.0.0.3:15012)")
	w.refused("twin (10.0.0.4:15012)")
	if err := forget("twin"); !errors.Is(err, ErrForgetReplica) || !strings.Contains(err.Error(), "several") {
		t.Errorf("two of that name: %v", err)
	}
	if err := errors.Join(forget("10.0.0.3:15012"), forget("twin (10.0.0.4:15012)")); err != nil {
		t.Error(err)
	}
	w.first.later(w.m, 2*askingFor)
	if _, err := w.m.Rotate(t.Context(), RotateRequest{Actor: "op"}); err != nil {
		t.Fatal(err)
	}
	w.first.later(w.m, settling+time.Second)
	if s := show(t, w.m); s.Rotation.Count != 1 {
		t.Fatalf("the rotation waits for %+v", s.Rotation.Waiting)
	}
	if err := forget(two.ReplicaID()); err != nil {
		t.Fatal(err)
	}
	if s := show(t, w.m); len(s.Replicas) != 0 || s.Rotation.Count != 0 {
		t.Errorf("after it was forgotten: %+v, the rotation waits for %+v", s.Replicas, s.Rotation.Waiting)
	}
	got := w.first.audited(audit.ReplicaForget)
	if want := []string{"refused  op", "refused  op", "refused  op", "refused  op", "op", "op",
		"op"}; !slices.Equal(got, want) {
		t.Errorf("the audit log has %q, want %q", got, want)
	}
	h.later(two, 0)
	w.first.later(w.m, 0)
	if len(show(t, w.m).Replicas) != 1 {
		t.Error("it is there and is not listed")
	}
}

// One that is not among others forgets nobody, and the audit log has that.
func TestForgetReplicaAlone(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	if _, err := h.move().ForgetReplica(t.Context(), "two", "", "op"); !errors.Is(err, ErrForgetReplica) {
		t.Errorf("got %v", err)
	}
	if got := h.audited(audit.ReplicaForget); !slices.Equal(got, []string{"refused  op"}) {
		t.Errorf("the audit log has %q", got)
	}
}

// A name that the replica has too that is asked means nobody: another one on its machine is
// forgotten by its ID.
func TestForgetReplicaBeside(t *testing.T) {
	t.Parallel()
	w := newTown(t)
	w.m.own.replica.name = "box1 (10.0.0.1:15012)"
	beside := w.refused("box1 (10.0.0.1:15013)")
	id, err := os.ReadFile(beside.at(replicaFile))
	if err != nil {
		t.Fatal(err)
	}
	other := strings.TrimSpace(string(id))
	for what, want := range map[string]string{"box1": other, "box1 (10.0.0.1:15012)": "is the one that was asked"} {
		if _, err := w.m.ForgetReplica(t.Context(), what,
			"", "op"); !errors.Is(err, ErrForgetReplica) || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, want %q", what, err, want)
		}
	}
	if x, err := w.m.ForgetReplica(t.Context(), other, "", "op"); err != nil || x.Name != "box1 (10.0.0.1:15013)" {
		t.Errorf("by its ID: %+v, %v", x, err)
	}
}

// A replica whose clock is far ahead is told so, with both clocks, instead of asking without end;
// it asks anew when its clock was set. TestReplicaRenews has the other clock be wrong.
func TestReplicaClockAhead(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		ahead time.Duration
	}{
		"ended by its clock": {intermediateLife + 10*24*time.Hour},
		"due by its clock":   {intermediateLife/2 + 24*time.Hour},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newTown(t)
			closed := w.open()
			h := w.another("two", w.token())
			h.later(nil, tc.ahead)
			for range 2 {
				_, err := NewManager(t.Context(), h.config)
				for _, want := range []string{noon.Add(tc.ahead).Format(time.RFC3339), noon.Format(time.RFC3339),
					"that of one, which has the root's key", "set the clock"} {
					if !errors.Is(err, ErrClock) || !strings.Contains(err.Error(), want) {
						t.Fatalf("got %v, want %q in it", err, want)
					}
				}
			}
			closed()
			if got := w.first.audited(audit.ReplicaIssue); len(got) != 1 || !strings.HasPrefix(got[0], audit.Refused) {
				t.Errorf("the audit log has %q", got)
			}
			h.later(nil, -tc.ahead)
			w.open()
			two := h.move()
			if err := believes(t, two.Signer(), two.config.Now(), w.m.Bundle().Roots...); err != nil {
				t.Error(err)
			}
		})
	}
}
