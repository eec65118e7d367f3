package ca

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ashore-mesh/ashore/internal/audit"
	"github.com/ashore-mesh/ashore/internal/record"
)

// keptLedger opens the ledger of a store and a folder.
func keptLedger(t *testing.T, s record.Store, dir string, events *[]audit.Event) (*Ledger, error) {
	t.Helper()
	return NewLedger(t.Context(), LedgerConfig{Records: s, Dir: dir, TrustDomain: "cluster.local", Groups: labGroups,
		Connections: BoundConnections(0),
		Now:         func() time.Time { return noon }, Audit: func(e audit.Event) {
			if events != nil {
				*events = append(*events, e)
			}
		}})
}

// mustLedger is keptLedger that has to open.
func mustLedger(t *testing.T, s record.Store, dir string) *Ledger {
	t.Helper()
	l, err := keptLedger(t, s, dir, nil)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// authority writes what there is of an authority that is older than its store.
func authority(t *testing.T, dir string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(dir, rootFile), []byte("a root"), 0o600); err != nil {
		t.Fatal(err)
	}
}

// rotationThere writes that an authority was begun in a store.
func rotationThere(t *testing.T, s record.Store) {
	t.Helper()
	if err := s.Commit(t.Context(), record.Write{Key: rotationKey(), Value: []byte("{}")}); err != nil {
		t.Fatal(err)
	}
}

// revokeNames revokes identities.
func revokeNames(t *testing.T, l *Ledger, names ...string) {
	t.Helper()
	for _, n := range names {
		if err := l.Revoke(t.Context(), RevokeRequest{Kind: RevokeIdentity,
			Name: "spiffe://cluster.local/ns/shop/sa/" + n, By: "tester", Reason: "stolen"}); err != nil {
			t.Fatal(err)
		}
	}
}

// wantRevoked says that these identities are revoked, and no others.
func wantRevoked(t *testing.T, l *Ledger, names ...string) {
	t.Helper()
	r, err := l.Revocations(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var want []string
	for _, n := range names {
		want = append(want, "spiffe://cluster.local/ns/shop/sa/"+n)
	}
	if !slices.Equal(r.Identities, want) {
		t.Errorf("revoked are %v, want %v", r.Identities, want)
	}
}

// wantProblem says that there is one problem, with these words; empty: that there is none.
func wantProblem(t *testing.T, l *Ledger, words ...string) {
	t.Helper()
	problems := l.Problems()
	if len(words) == 0 && len(problems) > 0 || len(words) > 0 && len(problems) != 1 {
		t.Fatalf("told are %q, want %q", problems, words)
	}
	for _, w := range words {
		if !strings.Contains(problems[0], w) {
			t.Errorf("told is %q, want %q in it", problems[0], w)
		}
	}
}

// A store that is lost lets nobody in: what was revoked stands in the copy. It is told, also after
// another start.
func TestStoreLost(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	first := mustLedger(t, record.NewMemory(), dir)
	wantProblem(t, first)
	authority(t, dir)
	revokeNames(t, first, "a", "b", "c")
	if err := first.Restore(t.Context(), RevokeRequest{Kind: RevokeIdentity,
		Name: "spiffe://cluster.local/ns/shop/sa/b"}); err != nil {
		t.Fatal(err)
	}
	lost := record.NewMemory()
	var events []audit.Event
	second, err := keptLedger(t, lost, dir, &events)
	if err != nil {
		t.Fatal(err)
	}
	wantRevoked(t, second, "a", "c")
	wantProblem(t, second, "begun anew", "2 revocations are in force",
		"have every workload join again: stop its agent, and then run a new line of \"ashorectl join-token create\" there", "no proxy of before that registers", "gets configuration, policies or revocations")
	if len(events) < 2 || events[0].Action != audit.WorkloadRevoke || events[0].Details["by"] != "tester" {
		t.Errorf("audited is %+v", events)
	}
	if r, err := second.Revocations(t.Context()); err != nil || r.Epoch != 3 {
		t.Errorf("the epoch is %d, want 3; error %v", r.Epoch, err)
	}
	third := mustLedger(t, lost, dir)
	wantRevoked(t, third, "a", "c")
	wantProblem(t, third, "begun anew")
	third.now = func() time.Time { return noon.Add(lossTold) }
	wantProblem(t, third)
}

// A store from a backup does not make forgotten what was revoked after it; what was restored before
// it stays restored.
func TestStoreOlder(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	now, backup := record.NewMemory(), record.NewMemory()
	l := mustLedger(t, now, dir)
	authority(t, dir)
	rotationThere(t, now)
	revokeNames(t, l, "a", "b")
	for _, table := range []string{ledgerTable, table, revocationTable} {
		records, err := now.List(t.Context(), table)
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range records {
			if err := backup.Commit(t.Context(), record.Write{Key: r.Key, Value: r.Value}); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := l.Restore(t.Context(), RevokeRequest{Kind: RevokeIdentity,
		Name: "spiffe://cluster.local/ns/shop/sa/a"}); err != nil {
		t.Fatal(err)
	}
	same := mustLedger(t, now, dir)
	wantRevoked(t, same, "b")
	wantProblem(t, same)
	revokeNames(t, same, "c")
	older := mustLedger(t, backup, dir)
	wantRevoked(t, older, "a", "b", "c") // what was restored later is out again: the backup says so
	wantProblem(t, older, "older than the copy", "1 revocation is in force that it did not have", "may be used again")
	revokeNames(t, older, "d")
	if r, err := older.Revocations(t.Context()); err != nil || r.Epoch != 4 {
		t.Errorf("the epoch is %d, want 4; error %v", r.Epoch, err)
	}
}

// A store that is lost, and no copy: it is told. Where there is no authority either, nothing was
// lost.
func TestStoreLostWithoutCopy(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	wantProblem(t, mustLedger(t, record.NewMemory(), dir))
	if err := os.Remove(filepath.Join(dir, copyFile)); err != nil {
		t.Fatal(err)
	}
	authority(t, dir)
	wantProblem(t, mustLedger(t, record.NewMemory(), dir), "begun anew", "no revocations are known", "audit log")
	before := record.NewMemory() // of a version that had no copies
	rotationThere(t, before)
	if err := os.Remove(filepath.Join(dir, copyFile)); err != nil {
		t.Fatal(err)
	}
	wantProblem(t, mustLedger(t, before, dir))
}

// A damaged copy is told of and put aside while the store is there. With a new store nothing says
// who is revoked, and nothing is begun.
func TestCopyDamaged(t *testing.T) {
	t.Parallel()
	for name, damage := range map[string]func([]byte) []byte{
		"cut":     func(b []byte) []byte { return b[:len(b)/2] },
		"empty":   func([]byte) []byte { return nil },
		"flipped": func(b []byte) []byte { return bytes.Replace(b, []byte("stolen"), []byte("stalen"), 1) },
		"newer":   func(b []byte) []byte { return bytes.Replace(b, []byte(`"v":1`), []byte(`"v":2`), 1) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir, s := t.TempDir(), record.NewMemory()
			revokeNames(t, mustLedger(t, s, dir), "a")
			file := filepath.Join(dir, copyFile)
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			if info, err := os.Stat(file); err != nil || info.Mode().Perm() != 0o600 {
				t.Errorf("the mode is %v, error %v", info.Mode(), err)
			}
			bad := damage(text)
			if err := os.WriteFile(file, bad, 0o600); err != nil {
				t.Fatal(err)
			}
			if _, err := keptLedger(t, record.NewMemory(), dir, nil); !errors.Is(err, errCopy) ||
				!strings.Contains(err.Error(), "move "+file+" aside") {
				t.Errorf("with a new store: %v", err)
			}
			l := mustLedger(t, s, dir)
			wantRevoked(t, l, "a")
			wantProblem(t, l, "was damaged", file+".damaged")
			if kept, err := os.ReadFile(file + ".damaged"); err != nil || !bytes.Equal(kept, bad) {
				t.Errorf("it is not kept: %v", err)
			}
			wantRevoked(t, mustLedger(t, record.NewMemory(), dir), "a") // from the new copy
		})
	}
}

// A revocation that the store does not take stands in the copy, and so outlives the process; that
// is no loss.
func TestUnkeptInTheCopy(t *testing.T) {
	t.Parallel()
	dir, s := t.TempDir(), &faultyStore{Store: record.NewMemory()}
	l := mustLedger(t, s, dir)
	rotationThere(t, s)
	s.fail(func([]record.Write) error { return errDisk })
	err := l.Revoke(t.Context(), RevokeRequest{Kind: RevokeIdentity, Name: "spiffe://cluster.local/ns/shop/sa/a",
		By: "tester"})
	if !errors.Is(err, ErrUnkept) || !strings.Contains(err.Error(), "read from there at the next start") {
		t.Fatalf("got %v", err)
	}
	file := filepath.Join(dir, copyFile)
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
	l.copied = nil
	if l.keep(t.Context()) {
		t.Error("the store takes nothing, and all is kept")
	}
	if _, err := os.Stat(file); err != nil {
		t.Errorf("the copy waits for the store: %v", err)
	}
	next := mustLedger(t, s, dir)
	wantRevoked(t, next, "a")
	s.fail(nil)
	if !next.keep(t.Context()) {
		t.Error("something is left")
	}
	wantProblem(t, next)
	if err := os.RemoveAll(dir); err != nil {
		t.Fatal(err)
	}
	revokeError := next.Revoke(t.Context(), RevokeRequest{Kind: RevokeIdentity,
		Name: "spiffe://cluster.local/ns/shop/sa/b"})
	wantRevoked(t, next, "a", "b")
	if revokeError != nil {
		t.Errorf("a revocation that the store has: %v", revokeError)
	}
	wantProblem(t, next, "copy of the revocations cannot be kept")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	if !next.keep(t.Context()) {
		t.Error("the copy is not kept again")
	}
	wantProblem(t, next)
}

// No copy, however damaged, makes reading panic; one that is read can be written and read again.
func FuzzCopy(f *testing.F) {
	whole, err := revocationCopy{Epoch: 7, Revocations: []Revocation{{Format: 1, Kind: RevokeIdentity,
		Name: "spiffe://td/ns/a/sa/b", Epoch: 7}}}.encode()
	if err != nil {
		f.Fatal(err)
	}
	f.Add(whole)
	f.Add([]byte(`{"v":1,"sha256":"","body":{}}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		c, err := decodeCopy(text)
		if err != nil {
			return
		}
		again, err := c.encode()
		if err != nil {
			t.Fatal(err)
		}
		if _, err := decodeCopy(again); err != nil {
			t.Fatalf("%s: %v", again, err)
		}
	})
}

// A copy that somebody removed while the ledger runs is made anew.
func TestCopyRemoved(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	l := mustLedger(t, record.NewMemory(), dir)
	revokeNames(t, l, "a")
	if err := os.Remove(filepath.Join(dir, copyFile)); err != nil {
		t.Fatal(err)
	}
	l.keep(t.Context())
	if c, found, err := l.dir.readCopy(); err != nil || !found || len(c.Revocations) != 1 {
		t.Errorf("the copy is %+v, there: %v, %v", c, found, err)
	}
}
