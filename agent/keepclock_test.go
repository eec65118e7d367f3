package agent

import (
	"crypto/x509"
	"testing"
	"time"
)

// This machine's clock is compared with when the certificate was issued. One that begins with its
// young authority is within the tolerance.
func TestClockSkew(t *testing.T) {
	t.Parallel()
	issued := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	for name, tc := range map[string]struct {
		since  time.Duration // the certificate's beginning, until its issue
		clock  time.Duration // of this machine, ahead
		expect time.Duration
	}{
		"right":           {backdate, 0, 0},
		"ahead":           {backdate, 5 * time.Minute, 5 * time.Minute},
		"behind":          {backdate, -5 * time.Minute, -5 * time.Minute},
		"young authority": {0, 0, -clockTolerance},
	} {
		id := &Identity{Chain: []*x509.Certificate{{NotBefore: issued.Add(-tc.since)}}}
		if got := clockSkew(id, issued.Add(tc.clock)); got != tc.expect {
			t.Errorf("%s: %s, want %s", name, got, tc.expect)
		}
	}
}
