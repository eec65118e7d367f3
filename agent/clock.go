package agent

import (
	"bytes"
	"crypto/x509"
	"slices"
	"time"
)

// backdate is how long before its issue a certificate begins.
const backdate = 2 * time.Minute

// clockSkew is how far this machine's clock is ahead of the authority's, which has just issued the certificate. One of an
// authority that is younger than backdate begins when that does: then the issue is between there and backdate later, and
// the skew is what is certain of it.
func clockSkew(id *Identity, now time.Time) time.Duration {
	since := now.Sub(id.Leaf().NotBefore)
	if since < backdate && id.clamped() {
		return min(since, 0)
	}
	return since - backdate
}

// clamped says that the certificate begins together with its issuer.
func (i *Identity) clamped() bool {
	leaf := i.Leaf()
	return slices.ContainsFunc(slices.Concat(i.Chain[1:], i.Roots), func(c *x509.Certificate) bool {
		return bytes.Equal(c.RawSubject, leaf.RawIssuer) && c.NotBefore.Equal(leaf.NotBefore)
	})
}
