package ca

import (
	"crypto/tls"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
)

// renewals has a workload renew n times, once in every pace, and returns all its certificates, the
// first one given.
func (l *lab) renewals(first *tls.Certificate, pace time.Duration, n int) []*tls.Certificate {
	l.t.Helper()
	all := []*tls.Certificate{first}
	for range n {
		l.pass(pace)
		next, _, err := l.ask(client{cert: all[len(all)-1]})
		if err != nil {
			l.t.Fatal(err)
		}
		all = append(all, next)
	}
	return all
}

// fingerprints are those of certificates, sorted.
func fingerprints(certs []*tls.Certificate) []string {
	var out []string
	for _, c := range certs {
		out = append(out, Fingerprint(c.Leaf))
	}
	return sorted(out)
}

// A revocation names every certificate by which a peer may hold a connection, also when it has
// ended, until that is over; and no more than that.
func TestRevokedConnections(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name         string
		lives, pace  time.Duration
		outlive      time.Duration
		n, most, min int
	}{
		{"of a day", 24 * time.Hour, 12 * time.Hour, 24*time.Hour + time.Hour + 6*time.Minute, 12, 5, 4},
		{"of an hour", time.Hour, 30 * time.Minute, time.Hour + time.Hour + 6*time.Minute, 20, 7, 6},
		{"of a minute", time.Minute, 30 * time.Second, 10*time.Minute + 10*time.Minute + 6*time.Minute, 80, 56, 50},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			l := newLab(t, nil).bounded(tc.lives)
			l.serve()
			if l.ledger.outlive != tc.outlive {
				t.Errorf("connections outlive certificates by %s, want %s", l.ledger.outlive, tc.outlive)
			}
			all := l.renewals(l.join("shop/web", "a"), tc.pace, tc.n)
			matters := slices.DeleteFunc(all,
				func(c *tls.Certificate) bool { return !c.Leaf.NotAfter.Add(tc.outlive).After(l.now()) })
			if n := len(matters); n > tc.most || n < tc.min {
				t.Errorf("%d certificates matter, want %d to %d", n, tc.min, tc.most)
			}
			l.revoke("shop/a")
			for len(matters) > 0 {
				r := l.revocations()
				if want := fingerprints(matters); !slices.Equal(r.Certificates, want) {
					t.Fatalf("%d certificates are listed, want %d", len(r.Certificates), len(want))
				}
				l.pass(matters[0].Leaf.NotAfter.Add(tc.outlive).Sub(l.now()))
				matters = matters[1:]
			}
			if r := l.revocations(); len(r.Certificates) != 0 || len(r.List) != 1 {
				t.Errorf("%d certificates and %d revocations at the end", len(r.Certificates), len(r.List))
			}
		})
	}
}

// Nobody has one of his certificates forgotten by asking for many.
func TestEndedCertificatesAreNotDriven(t *testing.T) {
	t.Parallel()
	l := newLab(t, nil).bounded(0)
	l.serve()
	all := []*tls.Certificate{l.join("shop/web", "a")}
	var err error
	for len(all) < 3*maxLeaves {
		var next *tls.Certificate
		l.pass(time.Minute)
		if next, _, err = l.ask(client{cert: all[len(all)-1]}); err != nil {
			break
		}
		all = append(all, next)
	}
	if err := wantRefused(err, codes.ResourceExhausted, "too many certificates"); err != nil {
		t.Error(err)
	}
	l.revoke("shop/a")
	if r := l.revocations(); !slices.Equal(r.Certificates, fingerprints(all)) {
		t.Errorf("%d certificates are listed, want %d", len(r.Certificates), len(all))
	}
	for _, table := range []string{"workload", "revocation"} {
		records, err := l.store.List(t.Context(), table)
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range records {
			if len(r.Value) > 56<<10 {
				t.Errorf("%s %s has %d bytes", table, strings.ToValidUTF8(r.Name, ""), len(r.Value))
			}
		}
	}
}
