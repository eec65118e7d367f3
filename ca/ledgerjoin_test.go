package ca

import (
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"

	"github.com/ashore-mesh/ashore/internal/audit"
)

// Whoever holds a token of one group cannot put a workload of another group out by taking its name,
// and does not use the token up by trying.
func TestNameOfAnotherGroup(t *testing.T) {
	t.Parallel()
	l := newLab(t, nil)
	l.serve()
	first := l.join("shop/web", "a")
	token := l.token("shop/api")
	_, _, err := l.ask(client{token: token, name: "a"})
	if err := wantRefused(err, codes.PermissionDenied, "another group"); err != nil {
		t.Error(err)
	}
	if err := l.audited(audit.TokenRefuse, "name of another group"); err != nil {
		t.Error(err)
	}
	renewed, _, err := l.ask(client{cert: first})
	if err != nil {
		t.Fatalf("the workload of the name: %v", err)
	}
	if _, _, err := l.ask(client{token: token, name: "a", cert: l.join("shop/api", "c")}); err == nil {
		t.Error("the certificate of another workload frees the name")
	}
	// A machine that moves to another group shows that it has the name.
	if _, _, err := l.ask(client{token: token, name: "a", cert: renewed}); err != nil {
		t.Errorf("the machine that has the name: %v", err)
	}
}

// A workload whose certificates can neither be shown nor renewed gives its name free.
func TestNameOfAnotherGroupIsFreed(t *testing.T) {
	t.Parallel()
	l := newLab(t, nil).bounded(time.Hour)
	l.serve()
	l.join("shop/web", "a")
	l.pass(time.Hour + 48*time.Hour)
	l.join("shop/api", "a")
}

// The newest operator's word wins: a token that was used before another one does not win the name
// back, not even with its own key.
func TestUsedTokenDoesNotComeBack(t *testing.T) {
	t.Parallel()
	l := newLab(t, nil)
	l.serve()
	key, token := NewKey(), l.token("shop/web")
	if _, _, err := l.ask(client{token: token, name: "a", key: key}); err != nil {
		t.Fatal(err)
	}
	l.pass(time.Minute)
	newest := l.join("shop/web", "a")
	if err := l.audited(audit.TokenUse, "replaced"); err != nil {
		t.Error(err)
	}
	l.pass(time.Minute)
	_, _, err := l.ask(client{token: token, name: "a", key: key})
	if err := wantRefused(err, codes.PermissionDenied, publicToken); err != nil {
		t.Error(err)
	}
	if _, _, err := l.ask(client{cert: newest}); err != nil {
		t.Errorf("the newest: %v", err)
	}
}

// A replaced machine receives the reason at once, and whenever it asks again.
func TestReplacedIsTold(t *testing.T) {
	t.Parallel()
	l := newLab(t, nil)
	l.serve()
	first := l.join("shop/web", "vm")
	before := l.ledger.reportReplaced(t.Context(), nil)
	l.pass(time.Minute)
	if _, _, err := l.ask(client{token: l.token("shop/web"), name: "vm"}); err != nil {
		t.Fatal(err)
	}
	l.ledger.reportReplaced(t.Context(), before)
	const words = "another machine joined under the name shop/vm at 2026-11-21T12:01:00Z from 127.0.0.1"
	if len(l.former) != 1 || l.former[0].SHA256 != Fingerprint(first.Leaf) || !strings.Contains(l.text, words) {
		t.Errorf("reported are %+v with %q", l.former, l.text)
	}
	_, _, err := l.ask(client{cert: first})
	if err := wantRefused(err, codes.Unauthenticated, words); err != nil {
		t.Error(err)
	}
	if _, err := l.ledger.Holds(t.Context(), first.Leaf); err == nil || !strings.Contains(err.Error(), words) {
		t.Errorf("looked up by its certificate: %v", err)
	}
}
