package adminapi

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

// What stands in the line to join is typed into a shell on another machine: what others wrote into
// the store is in it only if it is an address.
func TestControlPlanes(t *testing.T) {
	t.Parallel()
	o := &API{Addresses: []string{"one.example:15012"}, OtherAddresses: func() []string {
		return []string{"one.example:15012", "10.0.0.2:15012", "[2001:db8::1]:15012", "x; reboot #:15012",
			"$(reboot):15012", "two.example:`reboot`", "two.example:99999", "a,b:1", ""}
	}}
	if got, want := strings.Join(o.controlPlanes(), ","), "one.example:15012,10.0.0.2:15012,[2001:db8::1]:15012"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}
