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

// A revocation names every certificate that it puts out, holds for connections that were verified
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
	for _, tc := range []struct {
		kind         RevocationKind
		name         string
		certificates []string
		out, in      []string // fingerprints
	}{
		{RevokeWorkload, "shop/a", []string{Fingerprint(a.Leaf), Fingerprint(renewed.Leaf)}, []string{Fingerprint(a.Leaf), Fingerprint(renewed.Leaf)}, []string{Fingerprint(b.Leaf)}},
		{RevokeSerial, strings.ToUpper(serialText(a.Leaf)), []string{Fingerprint(a.Leaf)}, []string{Fingerprint(a.Leaf)}, []string{Fingerprint(renewed.Leaf), Fingerprint(b.Leaf)}},
		{RevokeIdentity, web(t).String(), nil, []string{Fingerprint(a.Leaf), Fingerprint(b.Leaf)}, nil},
	} {
		l.revoke(tc.kind, tc.name)
		l.revoke(tc.kind, tc.name) // again: no harm
		if err := l.audited(audit.WorkloadRevoke, "stolen"); err != nil {
			t.Error(err)
		}
		now := l.ledger.Revocations()
		if len(now.List) != 1 {
			t.Errorf("%s: %d revocations", tc.kind, len(now.List))
		}
		if d := cmp.Diff(sorted(tc.certificates), now.Certificates); d != "" {
			t.Errorf("%s: %s", tc.kind, d)
		}
		for _, f := range tc.out {
			if err := l.peers.Revoked(web(t), f); err == nil {
				t.Errorf("%s: %s is in", tc.kind, f)
			}
		}
		for _, f := range tc.in {
			if err := l.peers.Revoked(web(t), f); err != nil {
				t.Errorf("%s: %v", tc.kind, err)
			}
		}
		restore := RevokeRequest{Kind: tc.kind, Name: tc.name, By: "tester"}
		if err := l.ledger.Restore(t.Context(), restore); err != nil {
			t.Fatal(err)
		}
		if err := l.ledger.Restore(t.Context(), restore); !errors.Is(err, ErrNotFound) {
			t.Errorf("%s: restored twice: %v", tc.kind, err)
		}
		if err := l.audited(audit.WorkloadRestore, "tester"); err != nil {
			t.Error(err)
		}
		if err := l.peers.Revoked(web(t), Fingerprint(a.Leaf)); err != nil {
			t.Errorf("%s: not restored: %v", tc.kind, err)
		}
	}
	if _, _, err := l.ask(client{cert: renewed}); err != nil {
		t.Errorf("after all was restored: %v", err)
	}
}

// sorted is a sorted copy, nil when it is empty.
func sorted(s []string) []string { return slices.Sorted(slices.Values(s)) }

// What cannot be meant is refused with the reason.
func TestRevokeRefuses(t *testing.T) {
	t.Parallel()
	l := newLab(t, nil)
	for want, r := range map[string]RevokeRequest{
		"not of the form":          {Kind: RevokeIdentity, Name: "shop/web"},
		"want namespace/name":      {Kind: RevokeWorkload, Name: "web"},
		"not a serial number":      {Kind: RevokeSerial, Name: "xyz"},
		"shop/none: not found":     {Kind: RevokeWorkload, Name: "shop/none"},
		"serial 12: not found":     {Kind: RevokeSerial, Name: "00:12"},
		"want identity, workload":  {Kind: "user", Name: "x"},
		"at most 1024 are allowed": {Kind: RevokeIdentity, Name: web(t).String(), Reason: strings.Repeat("x", 1025)},
	} {
		if err := l.ledger.Revoke(t.Context(), r); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %q", err, want)
		}
	}
}

// The revocation of a certificate is forgotten when it can do nothing more, and not before.
func TestRevocationsOfCertificatesEnd(t *testing.T) {
	t.Parallel()
	l := newLab(t, nil)
	l.serve()
	c := l.join("shop/web", "a")
	l.revoke(RevokeSerial, serialText(c.Leaf))
	for _, step := range []struct {
		passes             time.Duration
		list, certificates int
	}{{0, 1, 1}, {24*time.Hour + 4*time.Minute, 1, 1}, {time.Minute, 1, 0}, {48*time.Hour - time.Minute, 1,
		0}, {2 * time.Minute, 0, 0}, {sweepSlack, 0, 0}} {
		l.pass(step.passes)
		if err := errors.Join(l.ledger.Sweep(t.Context()), l.ledger.reconcile(t.Context())); err != nil {
			t.Fatal(err)
		}
		r := l.ledger.Revocations()
		if len(r.List) != step.list || len(r.Certificates) != step.certificates {
			t.Errorf("at %s: %+v", l.now(), r)
		}
	}
	if left, err := l.store.List(t.Context(), "revocation"); err != nil || len(left) != 0 {
		t.Errorf("%d records are left, error %v", len(left), err)
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
	if err := other.Revoke(t.Context(), RevokeRequest{Kind: RevokeWorkload, Name: "shop/a"}); err != nil {
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
	l.revoke(RevokeIdentity, web(t).String())
	bad := record.Write{Key: record.Key{Table: "revocation", Name: "workload/x"},
		Value: []byte(`{"kind":"new"`), Version: record.Any}
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
