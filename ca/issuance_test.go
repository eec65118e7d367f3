package ca

import (
	"testing"
	"time"

	"google.golang.org/grpc/codes"

	"github.com/ashore-mesh/ashore/internal/audit"
	"github.com/ashore-mesh/ashore/internal/record"
)

// forget empties the lab's index of workloads.
func (l *lab) forget() {
	l.t.Helper()
	records, err := l.store.List(l.t.Context(), "workload")
	if err != nil {
		l.t.Fatal(err)
	}
	for _, r := range records {
		if err := l.store.Commit(l.t.Context(), record.Write{Key: r.Key, Version: r.Version}); err != nil {
			l.t.Fatal(err)
		}
	}
}

// After the index of workloads is lost every agent renews under its name, also in its grace, and
// the index lists it again. Revocations hold.
func TestIndexLost(t *testing.T) {
	t.Parallel()
	l := newLab(t, nil)
	l.serve()
	c, revoked := l.join("shop/web", "a"), l.join("shop/api", "b")
	l.revoke("shop/b")
	l.forget()
	l.pass(24*time.Hour + 47*time.Hour)
	if _, err := l.ledger.Holds(t.Context(), c.Leaf); err != nil {
		t.Errorf("its stream: %v", err)
	}
	next, _, err := l.ask(client{cert: c, name: "a"})
	if err != nil {
		t.Fatal(err)
	}
	if got := WorkloadName(next.Leaf); got != "shop/a" {
		t.Errorf("the certificate names %q", got)
	}
	w, err := l.ledger.Workload(t.Context(), "shop/a")
	if err != nil || w.Identity != web(t).String() || len(w.Leaves) != 1 {
		t.Errorf("the index has %+v, error %v", w, err)
	}
	if _, _, err := l.ask(client{cert: next}); err != nil {
		t.Error(err)
	}
	_, _, err = l.ask(client{cert: revoked})
	if err := wantRefused(err, codes.Unauthenticated, publicCertificate); err != nil {
		t.Errorf("of who was revoked: %v", err)
	}
}

// An index from a backup has older keys: the machines with newer certificates renew all the same.
func TestIndexOlder(t *testing.T) {
	t.Parallel()
	l := newLab(t, nil)
	l.serve()
	c := l.join("shop/web", "a")
	backup := record.NewMemory()
	copyRecords(t, l.store, backup, "workload")
	old := c
	for range 3 {
		l.pass(time.Hour)
		next, _, err := l.ask(client{cert: c})
		if err != nil {
			t.Fatal(err)
		}
		c = next
	}
	copyRecords(t, backup, l.store, "workload")
	l.pass(time.Minute)
	next, _, err := l.ask(client{cert: c})
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := l.ask(client{cert: next}); err != nil {
		t.Error(err)
	}
	_, _, err = l.ask(client{cert: old})
	if err := wantRefused(err, codes.Unauthenticated, "has a copy of the identity"); err != nil {
		t.Errorf("a key that was replaced: %v", err)
	}
}

// Two machines that have one identity, as clones do, are detected at the second renewal of the one
// that is late: it is refused and audited.
func TestCopiedIdentity(t *testing.T) {
	t.Parallel()
	l := newLab(t, nil)
	l.serve()
	c := l.join("shop/web", "a")
	copied := c
	for range 2 {
		l.pass(12 * time.Hour)
		next, _, err := l.ask(client{cert: c})
		if err != nil {
			t.Fatal(err)
		}
		c = next
	}
	_, _, err := l.ask(client{cert: copied})
	if err := wantRefused(err, codes.Unauthenticated, "another machine has a copy of the identity of shop/a"); err != nil {
		t.Error(err)
	}
	if err := l.audited(audit.CertificateRefuse, reasonReplaced); err != nil {
		t.Error(err)
	}
	if _, err := l.ledger.Holds(t.Context(), copied.Leaf); err == nil {
		t.Error("it may register")
	}
}

// A certificate of the mesh's root that names no workload is one of its key.
func TestCertificateWithoutName(t *testing.T) {
	t.Parallel()
	l := newLab(t, nil)
	l.serve()
	c := l.certificateFor(NewKey(), web(t).String())
	for range 2 {
		next, _, err := l.ask(client{cert: c})
		if err != nil {
			t.Fatal(err)
		}
		c = next
	}
	if all, err := l.ledger.Workloads(t.Context()); err != nil || len(all) != 1 {
		t.Errorf("the index has %d workloads, want 1; error %v", len(all), err)
	}
}
