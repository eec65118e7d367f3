package ca

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/ashore-mesh/ashore/internal/audit"
	"github.com/ashore-mesh/ashore/internal/record"
)

// A revocation names every certificate of its workload, holds for connections that were verified
// before, and is undone.
func TestRevokeAndRestore(t *testing.T) {
	t.Parallel()
	l := newLab(t, nil)
	l.serve()
	a, b := l.join("shop/web", "a"), l.join("shop/web", "b")
	renewed, _, err := l.ask(client{cert: a})
	if err != nil {
		t.Fatal(err)
	}
	ofA := []string{Fingerprint(a.Leaf), Fingerprint(renewed.Leaf)}
	for _, tc := range []struct {
		subject      string
		certificates []string
		out, in      []string // fingerprints
	}{
		{"shop/a", ofA, ofA, []string{Fingerprint(b.Leaf)}},
		{web(t).String(), nil, []string{Fingerprint(a.Leaf), Fingerprint(b.Leaf)}, nil},
	} {
		l.revoke(tc.subject)
		l.revoke(tc.subject) // again: no harm
		if err := l.audited(audit.WorkloadRevoke, "stolen"); err != nil {
			t.Error(err)
		}
		now := l.ledger.Revocations()
		if len(now.List) != 1 {
			t.Errorf("%s: %d revocations", tc.subject, len(now.List))
		}
		if d := cmp.Diff(sorted(tc.certificates), now.Certificates); d != "" {
			t.Errorf("%s: %s", tc.subject, d)
		}
		for _, f := range tc.out {
			if err := l.peers.Revoked(web(t), f); err == nil {
				t.Errorf("%s: %s is in", tc.subject, f)
			}
		}
		for _, f := range tc.in {
			if err := l.peers.Revoked(web(t), f); err != nil {
				t.Errorf("%s: %v", tc.subject, err)
			}
		}
		restore := RevokeRequest{Subject: tc.subject, By: "tester"}
		if err := l.ledger.Restore(t.Context(), restore); err != nil {
			t.Fatal(err)
		}
		if err := l.ledger.Restore(t.Context(), restore); !errors.Is(err, ErrNotFound) {
			t.Errorf("%s: restored twice: %v", tc.subject, err)
		}
		if err := l.audited(audit.WorkloadRestore, "tester"); err != nil {
			t.Error(err)
		}
		if err := l.peers.Revoked(web(t), Fingerprint(a.Leaf)); err != nil {
			t.Errorf("%s: not restored: %v", tc.subject, err)
		}
	}
	if _, _, err := l.ask(client{cert: renewed}); err != nil {
		t.Errorf("after all was restored: %v", err)
	}
}

// sorted is a sorted copy, nil when it is empty.
func sorted(s []string) []string { return slices.Sorted(slices.Values(s)) }

// What is not a subject is refused with the reason, and so is an unknown workload.
func TestRevokeRefuses(t *testing.T) {
	t.Parallel()
	for subject, want := range map[string]string{
		"spiffe://x":                       "not of the form",
		"web":                              "want NAMESPACE/NAME",
		"a/b/c":                            "want NAMESPACE/NAME",
		"shop/" + strings.Repeat("x", 600): "want NAMESPACE/NAME",
	} {
		if err := CheckSubject(subject); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %q", err, want)
		}
	}
	for _, subject := range []string{"shop/web", web(t).String()} {
		if err := CheckSubject(subject); err != nil {
			t.Error(err)
		}
	}
	err := newLab(t, nil).ledger.Revoke(t.Context(), RevokeRequest{Subject: "shop/none"})
	if !errors.Is(err, ErrNotFound) {
		t.Errorf("got %v", err)
	}
}

// Another replica's revocation counts here too, and a new process knows the old ones.
func TestRevocationsAreShared(t *testing.T) {
	t.Parallel()
	l := newLab(t, nil)
	l.serve()
	c := l.join("shop/web", "a")
	ctx, cancel := context.WithCancel(t.Context())
	changed := l.ledger.Watch(ctx)
	var wg sync.WaitGroup
	wg.Go(func() {
		if err := l.ledger.Run(ctx); err != nil {
			t.Error(err)
		}
	})
	other, err := NewLedger(t.Context(), LedgerConfig{Records: l.store, TrustDomain: "cluster.local", Now: l.now})
	if err != nil {
		t.Fatal(err)
	}
	if err := other.Revoke(t.Context(), RevokeRequest{Subject: "shop/a"}); err != nil {
		t.Fatal(err)
	}
	<-changed
	for l.peers.Revoked(web(t), Fingerprint(c.Leaf)) == nil {
		time.Sleep(time.Millisecond)
	}
	cancel()
	wg.Wait()
	third, err := NewLedger(t.Context(), LedgerConfig{Records: l.store, TrustDomain: "cluster.local", Now: l.now})
	if err != nil {
		t.Fatal(err)
	}
	if third.Revocations().refuse("", Fingerprint(c.Leaf)) == nil {
		t.Error("a new process does not know who is revoked")
	}
}

// A record that cannot be read lets nobody in: the last revocations stay, and a process does not
// start without them.
func TestBadRevocationRecord(t *testing.T) {
	t.Parallel()
	l := newLab(t, nil)
	l.revoke(web(t).String())
	bad := record.Write{Key: record.Key{Table: "revocation", Name: "workload/x"},
		Value: []byte(`{"subject":"new"`), Version: record.Any}
	if err := l.store.Commit(t.Context(), bad); err != nil {
		t.Fatal(err)
	}
	if err := l.ledger.reconcile(t.Context()); err == nil {
		t.Error("a bad record is no error")
	}
	if l.ledger.Revocations().refuse(web(t).String(), "") == nil {
		t.Error("the last revocations are gone")
	}
	if _, err := NewLedger(t.Context(), LedgerConfig{Records: l.store, TrustDomain: "cluster.local"}); err == nil {
		t.Error("a process starts without knowing who is revoked")
	}
}
