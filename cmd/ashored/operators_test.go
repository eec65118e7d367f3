package main

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/ashore-mesh/ashore/ca"
	"github.com/ashore-mesh/ashore/internal/admin"
)

// How long a token is to live is bounded on both sides, and a default when nobody says.
func TestLifetime(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]time.Duration{
		"": ca.DefaultTokenTTL, "1m": time.Minute, "2h": 2 * time.Hour,
		"59s": 0, "2h1s": 0, "-5m": 0, "soon": 0,
	} {
		got, err := lifetime("token", text, 2*time.Hour)
		if got != want || (err == nil) != (want > 0) {
			t.Errorf("%q: %s, %v; want %s", text, got, err, want)
		}
		if err != nil && (!errors.Is(err, admin.ErrInvalid) ||
			!strings.Contains(err.Error(),
				"a token cannot live for") || !strings.Contains(err.Error(), "want 1m to 2h0m0s")) {
			t.Errorf("%q: %v", text, err)
		}
	}
}

// Operators hear of each state of a replica by the word that the admin API has for it, whatever the
// authority calls it.
func TestReplicaState(t *testing.T) {
	t.Parallel()
	for s, want := range map[ca.ReplicaState]string{
		ca.ReplicaServing: admin.ReplicaServing, ca.ReplicaAsking: admin.ReplicaAsking, ca.ReplicaRefused: admin.ReplicaRefused, ca.ReplicaGone: admin.ReplicaGone, ca.ReplicaDamaged: admin.ReplicaDamaged,
	} {
		if got := replicaOf(ca.ReplicaStatus{State: s}).State; got != want {
			t.Errorf("%s is told as %q, want %q", s, got, want)
		}
	}
}
