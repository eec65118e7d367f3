package ca

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc/codes"

	"github.com/ashore-mesh/ashore/internal/audit"
	"github.com/ashore-mesh/ashore/internal/record"
)

// full has the lab's store take nothing.
func (l *lab) full() { l.store.fail(func([]record.Write) error { return errDisk }) }

// run runs the ledger until the test ends.
func (l *lab) run() {
	l.t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	wg.Go(func() {
		if err := l.ledger.Run(ctx); err != nil {
			l.t.Error(err)
		}
	})
	l.t.Cleanup(func() { cancel(); wg.Wait() })
}

// replicaLedger is the ledger of a replica that has a store and a folder.
func replicaLedger(t *testing.T, s record.Store, dir string) *Ledger {
	t.Helper()
	l, err := NewLedger(t.Context(), LedgerConfig{Records: s, Dir: dir, TrustDomain: "cluster.local", Groups: labGroups,
		Connections: BoundConnections(0), Now: func() time.Time { return noon }})
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// account is the identity of a service account in the namespace shop.
func account(name string) string { return "spiffe://cluster.local/ns/shop/sa/" + name }

func revokeNames(t *testing.T, l *Ledger, names ...string) {
	t.Helper()
	for _, n := range names {
		if err := l.Revoke(t.Context(), RevokeRequest{Subject: account(n), By: "tester"}); err != nil {
			t.Fatal(err)
		}
	}
}

func restoreNames(t *testing.T, l *Ledger, names ...string) {
	t.Helper()
	for _, n := range names {
		if err := l.Restore(t.Context(), RevokeRequest{Subject: account(n), By: "tester"}); err != nil {
			t.Fatal(err)
		}
	}
}

// wantRevoked checks that these identities are revoked, and no others.
func wantRevoked(t *testing.T, l *Ledger, names ...string) {
	t.Helper()
	var want []string
	for _, n := range names {
		want = append(want, account(n))
	}
	if got := l.Revocations().Identities; !slices.Equal(got, want) {
		t.Errorf("revoked are %v, want %v", got, want)
	}
}

// copyRecords copies a table into another store, as a restored backup has it.
func copyRecords(t *testing.T, from, to record.Store, table string) {
	t.Helper()
	records, err := from.List(t.Context(), table)
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range records {
		if err := to.Commit(t.Context(), record.Write{Key: r.Key, Value: r.Value, Version: record.Any}); err != nil {
			t.Fatal(err)
		}
	}
}

// Revocations and restorations outlive the store: a lost store, and one from a backup, get what
// they lack from the local file.
func TestRevocationsOutliveTheStore(t *testing.T) {
	t.Parallel()
	dir, backup := t.TempDir(), record.NewMemory()
	store := record.NewMemory()
	l := replicaLedger(t, store, dir)
	revokeNames(t, l, "a", "b")
	copyRecords(t, store, backup, "revocation")
	restoreNames(t, l, "b")
	revokeNames(t, l, "c")
	for _, s := range map[string]record.Store{"lost": record.NewMemory(), "backup": backup} {
		l := replicaLedger(t, s, dir)
		wantRevoked(t, l, "a", "c")
		wantRevoked(t, replicaLedger(t, s, t.TempDir()), "a", "c") // another replica of the same store
	}
}

// A store that is restored from a backup while ashored runs gets what it lacks.
func TestStoreRestoredWhileRunning(t *testing.T) {
	t.Parallel()
	store, backup := record.NewMemory(), record.NewMemory()
	l := replicaLedger(t, store, t.TempDir())
	revokeNames(t, l, "a")
	copyRecords(t, store, backup, "revocation")
	restoreNames(t, l, "a")
	revokeNames(t, l, "b")
	copyRecords(t, backup, store, "revocation")
	if err := l.reconcile(t.Context()); err != nil {
		t.Fatal(err)
	}
	wantRevoked(t, l, "b")
	wantRevoked(t, replicaLedger(t, store, t.TempDir()), "b")
}

// A damaged local file is replaced by what the store has.
func TestLocalFileDamaged(t *testing.T) {
	t.Parallel()
	for name, text := range map[string]string{"cut": `[{"subject":`, "empty": ""} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir, s := t.TempDir(), record.NewMemory()
			revokeNames(t, replicaLedger(t, s, dir), "a")
			file := filepath.Join(dir, revocationFile)
			if info, err := os.Stat(file); err != nil || info.Mode().Perm() != 0o600 {
				t.Errorf("the mode is %v, error %v", info.Mode(), err)
			}
			if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
			wantRevoked(t, replicaLedger(t, s, dir), "a")
			wantRevoked(t, replicaLedger(t, record.NewMemory(), dir), "a") // from the new file
		})
	}
}

// A revocation that the store cannot take is in force at once, outlives the process, and is written
// as soon as the store can be written.
func TestRevokeOnAFullDisk(t *testing.T) {
	t.Parallel()
	for _, subject := range []string{web(t).String(), "shop/a"} {
		t.Run(subject, func(t *testing.T) {
			t.Parallel()
			l := newLab(t, nil)
			l.serve()
			c, other := l.join("shop/web", "a"), l.join("shop/api", "b")
			l.full()
			changed := l.ledger.Watch(t.Context())
			l.run()
			request := RevokeRequest{Subject: subject, By: "tester", Reason: "stolen"}
			err := l.ledger.Revoke(t.Context(), request)
			if !errors.Is(err, ErrPending) || !errors.Is(err, errDisk) {
				t.Fatalf("got %v", err)
			}
			<-changed
			if err := l.audited(audit.WorkloadRevoke, "kept:no"); err != nil {
				t.Error(err)
			}
			if l.peers.Revoked(web(t), Fingerprint(c.Leaf)) == nil || len(l.ledger.Revocations().List) != 1 {
				t.Error("it is not in force")
			}
			for len(l.ledger.Problems()) != 1 {
				time.Sleep(time.Millisecond)
			}
			l.store.fail(func(w []record.Write) error { // it takes a workload, but no revocation
				if slices.ContainsFunc(w, func(w record.Write) bool { return w.Table == "revocation" }) {
					return errDisk
				}
				return nil
			})
			if _, _, err := l.ask(client{cert: c}); wantRefused(err, codes.Unauthenticated, "") != nil {
				t.Errorf("it renews: %v", err)
			}
			if _, _, err := l.ask(client{cert: other}); err != nil {
				t.Errorf("another one: %v", err)
			}
			if err := l.ledger.Revoke(t.Context(), request); !errors.Is(err, ErrPending) {
				t.Errorf("again: %v", err)
			}
			l.store.fail(nil)
			for l.ledger.Pending() > 0 || l.audited(audit.WorkloadRevoke, "kept:yes") != nil {
				time.Sleep(time.Millisecond)
			}
			next, err := NewLedger(t.Context(), LedgerConfig{Records: l.store, TrustDomain: "cluster.local", Now: l.now})
			if err != nil || next.Revocations().refuse(web(t).String(), Fingerprint(c.Leaf)) == nil {
				t.Errorf("a new process does not know it: %v", err)
			}
		})
	}
}

// A pending revocation outlives the process, and counts more than what other replicas wrote
// meanwhile. A restoration after it counts more, and needs the store.
func TestPendingRevocation(t *testing.T) {
	t.Parallel()
	shared, dir := record.NewMemory(), t.TempDir()
	cut := &faultyStore{Store: shared}
	one, two := replicaLedger(t, cut, dir), replicaLedger(t, shared, t.TempDir())
	revokeNames(t, two, "a")
	restoreNames(t, two, "a")
	if err := one.reconcile(t.Context()); err != nil {
		t.Fatal(err)
	}
	cut.fail(func([]record.Write) error { return errDisk })
	err := one.Revoke(t.Context(), RevokeRequest{Subject: account("a"), By: "tester"})
	if !errors.Is(err, ErrPending) || !strings.Contains(err.Error(), revocationFile) {
		t.Fatalf("got %v", err)
	}
	if err := one.Restore(t.Context(), RevokeRequest{Subject: account("a")}); !errors.Is(err, errDisk) {
		t.Errorf("restored without the store: %v", err)
	}
	revokeNames(t, two, "a") // it does not know
	restoreNames(t, two, "a")
	one = replicaLedger(t, cut, dir)
	wantRevoked(t, one, "a")
	cut.fail(nil)
	if err := one.reconcile(t.Context()); err != nil || one.Pending() != 0 || len(one.Problems()) != 0 {
		t.Errorf("%d are pending, problems %q, error %v", one.Pending(), one.Problems(), err)
	}
	if err := two.reconcile(t.Context()); err != nil {
		t.Fatal(err)
	}
	wantRevoked(t, two, "a")
	restoreNames(t, two, "a")
	if err := one.reconcile(t.Context()); err != nil {
		t.Fatal(err)
	}
	wantRevoked(t, one)
}

// A local file that cannot be written is a problem, and revocations that the store has are made.
func TestLocalFileUnwritable(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "ca")
	l := replicaLedger(t, record.NewMemory(), dir)
	if err := os.RemoveAll(dir); err != nil {
		t.Fatal(err)
	}
	revokeNames(t, l, "a")
	if p := l.Problems(); len(p) != 1 || !strings.Contains(p[0], revocationFile) {
		t.Errorf("problems are %q", p)
	}
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := l.save(); err != nil || len(l.Problems()) != 0 {
		t.Errorf("problems are %q, error %v", l.Problems(), err)
	}
	wantRevoked(t, replicaLedger(t, record.NewMemory(), dir), "a")
}

// While the disk does not take the local file, revocations of this and other replicas are in force,
// and metrics and problems do not wait.
func TestDiskHangs(t *testing.T) {
	t.Parallel()
	l := newLab(t, nil)
	l.ledger.config.Dir = t.TempDir()
	l.ledger.revocations.saving.Lock() // as a write that hangs
	done := make(chan struct{})
	go func() {
		defer close(done)
		revokeNames(t, l.ledger, "a")
	}()
	l.run()
	for len(l.ledger.Revocations().List) == 0 {
		time.Sleep(time.Millisecond)
	}
	revokeNames(t, replicaLedger(t, l.store, t.TempDir()), "b")
	for len(l.ledger.Revocations().List) == 1 {
		time.Sleep(time.Millisecond)
	}
	if n, p := l.ledger.Pending(), l.ledger.Problems(); n != 0 || len(p) != 0 {
		t.Errorf("%d are pending, problems %q", n, p)
	}
	l.ledger.revocations.saving.Unlock()
	<-done
}
