package ca

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/ashore-mesh/ashore/internal/record"
)

// A wrong clock is named, whichever way it is wrong.
func TestWrongClock(t *testing.T) {
	t.Parallel()
	for days, want := range map[time.Duration]string{
		-1:    "is before 2026-11-21T11:58:00Z, and this machine's clock says 2026-11-20T12:00:00Z: set the clock",
		36600: "is after 2036-11-18T12:00:00Z, and this machine's clock says 2127-02-05T12:00:00Z: set the clock; if it is right and the root has expired, move the state folder aside",
	} {
		h := newHouse(t)
		h.move()
		h.later(nil, days*24*time.Hour)
		if _, err := NewManager(t.Context(), h.config); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%d days: got %v, want %q", days, err, want)
		}
	}
}

// When the disk takes no new intermediate, the one at hand signs on, that is shown, and it is tried
// again.
func TestDiskTakesNothing(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	m := h.move()
	was := m.Signer()
	if err := os.Remove(h.at(intermediateFile)); err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(filepath.Join(h.at(intermediateFile), "in the way"), 0o700); err != nil {
		t.Fatal(err)
	}
	h.later(m, 20*24*time.Hour)
	if p := show(t, m).Problems; m.Signer() != was || len(p) != 1 ||
		!strings.Contains(p[0], "the intermediate cannot be renewed and expires at 2026-12-21T12:00:00Z: write "+h.at(intermediateFile)) {
		t.Errorf("problems: %q", p)
	}
	if left, err := filepath.Glob(h.at(".*")); err != nil || len(left) > 0 {
		t.Errorf("left over: %q, %v", left, err)
	}
	if err := os.RemoveAll(h.at(intermediateFile)); err != nil {
		t.Fatal(err)
	}
	h.later(m, time.Minute)
	if p := show(t, m).Problems; m.Signer() == was || len(p) > 0 {
		t.Errorf("problems afterwards: %q", p)
	}
	// Past its end nothing is signed that nobody would believe.
	if err := os.Remove(h.at(rootFile)); err != nil {
		t.Fatal(err)
	}
	again := h.move()
	h.later(again, 31*24*time.Hour)
	if again.trouble == "" || !strings.Contains(again.trouble, "restore that file from a backup") {
		t.Errorf("trouble: %q", again.trouble)
	}
	if _, err := Issue(again.Signer(), Grant{ID: web(t), Key: NewKey().Public()},
		h.config.Now()); err == nil {
		t.Error("it signs beyond its end")
	}
}

// Another replica's step at the same moment is taken as it is, and the rotation goes on from there.
func TestRotationConflict(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	store := &hooked{h.records, func(string) {}}
	h.config.Records = store
	m := h.move()
	if _, err := m.Rotate(t.Context(), RotateRequest{}); err != nil {
		t.Fatal(err)
	}
	conflicts := 0
	store.at = func(string) {
		if conflicts > 0 {
			return
		}
		conflicts++
		r, err := h.records.Get(t.Context(), record.Key{Table: "ca", Name: stateName})
		if err == nil {
			err = h.records.Commit(t.Context(), record.Write(r))
		}
		if err != nil {
			t.Error(err)
		}
	}
	h.later(m, settling)
	if conflicts != 1 || !m.own.state.rotating() || m.trouble != "" {
		t.Errorf("%d conflicts, state %+v, trouble %q", conflicts, m.own.state, m.trouble)
	}
}

// A store that lost the state while ashored runs changes nothing of what is current.
func TestRecordsVanish(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	m := h.move()
	signer, bundle := m.Signer(), m.Bundle()
	if err := h.records.Commit(t.Context(), record.Write{Key: record.Key{Table: "ca", Name: stateName}, Version: record.Any}); err != nil {
		t.Fatal(err)
	}
	h.later(m, time.Minute)
	if p := show(t, m).Problems; m.Signer() != signer || m.Bundle() != bundle || len(p) != 1 ||
		!strings.Contains(p[0], "the records do not have the mesh's root any more") {
		t.Errorf("problems: %q", p)
	}
}
