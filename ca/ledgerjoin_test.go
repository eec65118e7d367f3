package ca

import (
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
	if _, _, err := l.ask(client{token: token, name: "b"}); err != nil {
		t.Errorf("the token after that: %v", err)
	}
	// An operator says that the machine has moved.
	l.revoke(RevokeSerial, serialText(first.Leaf))
	l.revoke(RevokeSerial, serialText(renewed.Leaf))
	l.join("shop/api", "a")
}

// A workload whose certificates can neither be shown nor renewed gives its name free.
func TestNameOfAnotherGroupIsFreed(t *testing.T) {
	t.Parallel()
	l := newLab(t, nil)
	l.serve()
	if _, _, err := l.ask(client{token: l.token("shop/web"), name: "a", lives: time.Hour}); err != nil {
		t.Fatal(err)
	}
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
	if err := l.audited(audit.WorkloadJoin, "replaced"); err != nil {
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
