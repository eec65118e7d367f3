package ca

import (
	"context"
	"errors"
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

// problem says whether a problem of the ledger holds these words.
func (l *lab) problem(words string) bool {
	return slices.ContainsFunc(l.ledger.Problems(), func(p string) bool { return strings.Contains(p, words) })
}

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

// Who loses patience with a store that hangs has revoked all the same.
func TestRevokeWithoutPatience(t *testing.T) {
	t.Parallel()
	l := newLab(t, nil)
	l.serve()
	c := l.join("shop/web", "a")
	token, _, err := l.ledger.CreateToken(t.Context(), TokenRequest{Group: "shop/web", TTL: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	id, _, _ := strings.Cut(strings.TrimPrefix(token, tokenPrefix), ".")
	ctx, cancel := context.WithCancel(t.Context())
	l.store.fail(func([]record.Write) error { cancel(); return errDisk })
	if err := l.ledger.Revoke(ctx, RevokeRequest{Kind: RevokeIdentity, Name: web(t).String(),
		By: "tester"}); !errors.Is(err, ErrUnkept) {
		t.Errorf("got %v", err)
	}
	if l.peers.Revoked(web(t), Fingerprint(c.Leaf)) == nil {
		t.Error("it is in")
	}
	if err := l.ledger.RevokeToken(ctx, id, "tester"); !errors.Is(err, ErrUnkept) {
		t.Errorf("a token: got %v", err)
	}
}

// A revocation that the store cannot take is in force at once, is told of, and is kept when there
// is room again.
func TestRevokeOnAFullDisk(t *testing.T) {
	t.Parallel()
	for _, kind := range []RevocationKind{RevokeIdentity, RevokeWorkload, RevokeSerial} {
		t.Run(string(kind), func(t *testing.T) {
			t.Parallel()
			l := newLab(t, nil)
			l.serve()
			c, other := l.join("shop/web", "a"), l.join("shop/api", "b")
			name := map[RevocationKind]string{RevokeIdentity: web(t).String(), RevokeWorkload: "shop/a",
				RevokeSerial: serialText(c.Leaf)}[kind]
			l.full()
			changed := l.ledger.Watch(t.Context())
			l.run()
			<-changed // what it tells at its start
			err := l.ledger.Revoke(t.Context(), RevokeRequest{Kind: kind, Name: name, By: "tester", Reason: "stolen"})
			if !errors.Is(err, ErrUnkept) || !errors.Is(err, errDisk) ||
				!strings.Contains(err.Error(), "until ashored ends") {
				t.Fatalf("got %v", err)
			}
			<-changed
			if err := l.audited(audit.WorkloadRevoke, "kept:no"); err != nil {
				t.Error(err)
			}
			if l.peers.Revoked(web(t), Fingerprint(c.Leaf)) == nil {
				t.Error("it is in")
			}
			if r, err := l.ledger.Revocations(t.Context()); err != nil || len(r.List) != 1 || r.Epoch != 1 {
				t.Errorf("%+v, %v", r, err)
			}
			if !l.problem("kept nowhere") || !l.problem("cannot be written since") || l.ledger.Unkept() != 1 ||
				!l.ledger.Failing() {
				t.Errorf("told are %q", l.ledger.Problems())
			}
			l.store.fail(func(w []record.Write) error { // it takes a workload, but no revocation
				if slices.ContainsFunc(w, func(w record.Write) bool { return w.Table == revocationTable }) {
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
			if err := l.ledger.Revoke(t.Context(), RevokeRequest{Kind: kind, Name: name}); !errors.Is(err, ErrUnkept) {
				t.Errorf("again: %v", err)
			}
			l.store.fail(nil)
			for len(l.ledger.Problems()) > 0 {
				time.Sleep(time.Millisecond)
			}
			if err := l.audited(audit.WorkloadRevoke, "kept:yes"); err != nil {
				t.Error(err)
			}
			next, err := NewLedger(t.Context(), LedgerConfig{Records: l.store, TrustDomain: "cluster.local",
				Now: l.now})
			if err != nil || next.revokedNow(web(t).String(), Fingerprint(c.Leaf)) == nil ||
				next.revoked.Load().Epoch != 1 {
				t.Errorf("a new process does not know it: %v", err)
			}
		})
	}
}

// What is told of a revocation that is kept at last ends in the operator's words, where there are
// some.
func TestUnkeptReason(t *testing.T) {
	t.Parallel()
	for reason, want := range map[string]string{"": "kept now, after it could not be",
		"stolen": "kept now, after it could not be: stolen"} {
		l := newLab(t, nil)
		l.serve()
		l.join("shop/web", "a")
		l.full()
		if err := l.ledger.Revoke(t.Context(), RevokeRequest{Kind: RevokeWorkload, Name: "shop/a",
			Reason: reason}); !errors.Is(err, ErrUnkept) {
			t.Fatal(err)
		}
		l.store.fail(nil)
		if !l.ledger.keep(t.Context()) {
			t.Error("it is not kept")
		}
		if got := l.events[len(l.events)-1].Reason; got != want {
			t.Errorf("with the reason %q the audit log says %q, want %q", reason, got, want)
		}
	}
}

// Another revocation while one waits has an epoch of its own; one that waits can be restored.
func TestUnkeptAmongOthers(t *testing.T) {
	t.Parallel()
	l := newLab(t, nil)
	l.serve()
	l.join("shop/web", "a")
	l.join("shop/web", "b")
	l.full()
	if err := l.ledger.Revoke(t.Context(), RevokeRequest{Kind: RevokeWorkload, Name: "shop/a"}); !errors.Is(err,
		ErrUnkept) {
		t.Fatal(err)
	}
	l.store.fail(nil)
	l.revoke(RevokeWorkload, "shop/b")
	if r, err := l.ledger.Revocations(t.Context()); err != nil || r.Epoch != 2 || len(r.List) != 2 {
		t.Errorf("epoch %d with %d revocations, want 2 with 2; error %v", r.Epoch, len(r.List), err)
	}
	if err := l.ledger.Restore(t.Context(), RevokeRequest{Kind: RevokeWorkload, Name: "shop/a"}); err != nil {
		t.Error(err)
	}
	if !l.ledger.keep(t.Context()) {
		t.Error("something is left")
	}
	if r, err := l.ledger.Revocations(t.Context()); err != nil || len(r.List) != 1 {
		t.Errorf("%d revocations, want 1; error %v", len(r.List), err)
	}
	l.full()
	if err := l.ledger.Restore(t.Context(), RevokeRequest{Kind: RevokeWorkload, Name: "shop/b",
		By: "tester"}); !errors.Is(err, errDisk) {
		t.Errorf("got %v", err)
	}
	if err := l.audited(audit.WorkloadRestore, audit.Failed); err != nil {
		t.Error(err)
	}
	if r, err := l.ledger.Revocations(t.Context()); err != nil || len(r.List) != 1 {
		t.Errorf("%d revocations after a restoration that failed, want 1; error %v", len(r.List), err)
	}
}

// A renewal that is on its way when a revocation is not kept hands nothing out.
func TestUnkeptDuringRenewal(t *testing.T) {
	t.Parallel()
	l := newLab(t, nil)
	l.serve()
	c := l.join("shop/web", "a")
	once := sync.OnceFunc(func() {
		l.full()
		if err := l.ledger.Revoke(t.Context(), RevokeRequest{Kind: RevokeWorkload, Name: "shop/a"}); !errors.Is(err,
			ErrUnkept) {
			t.Error(err)
		}
		l.store.fail(nil)
	})
	l.store.fail(func([]record.Write) error { once(); return nil })
	if _, _, err := l.ask(client{cert: c}); wantRefused(err, codes.Unauthenticated, "") != nil {
		t.Errorf("it renews: %v", err)
	}
}

// A token that is revoked and cannot be kept so joins nobody; a new one is refused with what to do,
// and both are audited.
func TestTokensOnAFullDisk(t *testing.T) {
	t.Parallel()
	l := newLab(t, nil)
	l.serve()
	text := l.token("shop/web")
	id, _, err := parseToken(text)
	if err != nil {
		t.Fatal(err)
	}
	l.full()
	if err := l.ledger.RevokeToken(t.Context(), id, "tester"); !errors.Is(err, ErrUnkept) {
		t.Errorf("got %v", err)
	}
	if err := l.audited(audit.TokenRevoke, "kept:no"); err != nil {
		t.Error(err)
	}
	if _, _, err := l.ledger.CreateToken(t.Context(), TokenRequest{Group: "shop/web", By: "tester"}); !errors.Is(err,
		errDisk) {
		t.Errorf("got %v", err)
	}
	if err := l.audited(audit.TokenCreate, audit.Failed); err != nil {
		t.Error(err)
	}
	l.store.fail(nil)
	if _, _, err := l.ask(client{token: text, name: "a"}); wantRefused(err, codes.PermissionDenied, "") != nil {
		t.Errorf("it joins: %v", err)
	}
	if tokens, err := l.ledger.Tokens(t.Context()); err != nil || len(tokens) != 1 ||
		tokens[0].State(l.now()) != "revoked" {
		t.Errorf("%+v, %v", tokens, err)
	}
	if !l.problem("revocation of join tokens (1)") || !l.ledger.keep(t.Context()) || len(l.ledger.Problems()) != 0 {
		t.Errorf("told are %q", l.ledger.Problems())
	}
	if got, _, err := l.ledger.token(t.Context(), id); err != nil || got.RevokedBy != "tester" {
		t.Errorf("%+v, %v", got, err)
	}
}
