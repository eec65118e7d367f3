package agent

import (
	"crypto/x509"
	"testing"
	"time"
)

// This machine's clock is compared with when the certificate was issued. One that begins with its young authority says no
// more than that it was issued in the two minutes since.
func TestClockSkew(t *testing.T) {
	t.Parallel()
	issued := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	issuer := func(age time.Duration) *x509.Certificate {
		return &x509.Certificate{RawSubject: []byte("authority"), NotBefore: issued.Add(-age)}
	}
	leaf := func(age time.Duration) *x509.Certificate {
		return &x509.Certificate{RawIssuer: []byte("authority"), NotBefore: issued.Add(-age)}
	}
	other := &x509.Certificate{RawSubject: []byte("other"), NotBefore: issued.Add(-backdate)}
	for name, tc := range map[string]struct {
		id     *Identity
		clock  time.Duration // of this machine, ahead
		expect time.Duration
	}{
		"old authority":                {&Identity{Chain: []*x509.Certificate{leaf(backdate), issuer(time.Hour)}}, 0, 0},
		"old authority, ahead":         {&Identity{Chain: []*x509.Certificate{leaf(backdate), issuer(time.Hour)}}, 5 * time.Minute, 5 * time.Minute},
		"old authority, behind":        {&Identity{Chain: []*x509.Certificate{leaf(backdate), issuer(time.Hour)}}, -5 * time.Minute, -5 * time.Minute},
		"old authority, a bit behind":  {&Identity{Chain: []*x509.Certificate{leaf(backdate), issuer(time.Hour)}}, -90 * time.Second, -90 * time.Second},
		"young authority":              {&Identity{Chain: []*x509.Certificate{leaf(time.Second), issuer(time.Second)}}, 0, 0},
		"young authority, much ahead":  {&Identity{Chain: []*x509.Certificate{leaf(time.Second), issuer(time.Second)}}, 5 * time.Minute, 5*time.Minute + time.Second - backdate},
		"young authority, much behind": {&Identity{Chain: []*x509.Certificate{leaf(time.Second), issuer(time.Second)}}, -5 * time.Minute, -5*time.Minute + time.Second},
		"young root that signs":        {&Identity{Chain: []*x509.Certificate{leaf(time.Second)}, Roots: []*x509.Certificate{other, issuer(time.Second)}}, 0, 0},
		"another root, as young":       {&Identity{Chain: []*x509.Certificate{leaf(backdate), issuer(time.Hour)}, Roots: []*x509.Certificate{other}}, -90 * time.Second, -90 * time.Second},
	} {
		if got := clockSkew(tc.id, issued.Add(tc.clock)); got != tc.expect {
			t.Errorf("%s: %s, want %s", name, got, tc.expect)
		}
	}
}
