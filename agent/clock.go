package agent

import "time"

// backdate is how long before its issue a certificate begins.
const backdate = 2 * time.Minute

// clockSkew is how far this machine's clock is ahead of the authority's, which has just issued the
// certificate. One of an authority that is younger than backdate begins when that does: its skew is
// wrong by backdate at most.
func clockSkew(id *Identity, now time.Time) time.Duration {
	return now.Sub(id.Leaf().NotBefore) - backdate
}
