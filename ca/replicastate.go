package ca

import (
	"bytes"
	"crypto/x509"
	"maps"
	"slices"
	"time"
)

// ReplicaState is how another replica is. Its text is for the log; what is told to operators, the
// admin API has words for.
type ReplicaState string

// The states of another replica.
const (
	ReplicaServing ReplicaState = "serving" // it is alive and signs
	ReplicaAsking  ReplicaState = "asking"  // it waits for its first intermediate
	ReplicaRefused ReplicaState = "refused" // it gets none
	ReplicaGone    ReplicaState = "gone"    // it was not heard of
	ReplicaDamaged ReplicaState = "damaged" // its record cannot be read
)

// askingFor is how long one that asks is taken to ask on after it was heard of: it says so each
// idlePace.
const askingFor = 3 * idlePace

// ReplicaStatus is another replica that signs below the same root, or wants to.
type ReplicaStatus struct {
	// ID is what the records call it, and Name what people do.
	ID, Name string
	State    ReplicaState
	// Reason says why it is refused, or what it waits for; may be empty.
	Reason string
	// Seen is when it was there last, to some minutes; zero: nobody knows.
	Seen time.Time
	// Signer is its intermediate.
	Signer CertificateStatus
}

// stale says that a record of its own does not tell any more that a replica is there.
func (r replicaRecord) stale(now time.Time) bool { return now.Sub(r.Seen).Abs() >= idlePace }

// heard is when a replica was there last, by what its record tells. What is far in the future a
// clock says that is wrong.
func (r replicaRecord) heard(now time.Time) time.Time {
	times := []time.Time{r.Seen, r.RefusedAt}
	if r.Request != nil {
		times = append(times, r.Request.At)
	}
	for _, c := range r.certificates() {
		times = append(times, c.NotBefore)
	}
	var last time.Time
	for _, t := range times {
		if !t.After(now.Add(clockAhead)) {
			last = later(last, t)
		}
	}
	return last
}

// signs says whether a replica has an intermediate that is valid.
func (r replicaRecord) signs(now time.Time) bool {
	return slices.ContainsFunc(r.certificates(), func(c *x509.Certificate) bool { return now.Before(c.NotAfter) })
}

// ends is when the last of a replica's intermediates ends.
func (r replicaRecord) ends() time.Time {
	var last time.Time
	for _, c := range r.certificates() {
		last = later(last, c.NotAfter)
	}
	return last
}

// serves says whether a replica is alive and signs; heard: somebody has heard of it. One whose
// record does not tell when it was there is of an older release, which tells nobody what it is
// called: it may serve for as long as its intermediate is valid.
func (m *membership) serves(id string, r replicaRecord, now time.Time) (serves, heard bool) {
	switch {
	case m.alive == nil:
		serves = r.signs(now) && now.Before(r.heard(now).Add(askingFor))
		return serves, serves
	case m.alive(id):
		return true, true
	}
	return r.Seen.IsZero() && r.signs(now), false
}

// status are the other replicas, for people.
func (m *membership) status(roots []*x509.Certificate, now time.Time) []ReplicaStatus {
	var out []ReplicaStatus
	for _, id := range slices.Sorted(maps.Keys(m.others)) {
		out = append(out, m.statusOf(id, m.others[id], roots, now))
	}
	return out
}

// statusOf is another replica, for people.
func (m *membership) statusOf(id string, r replicaRecord, roots []*x509.Certificate, now time.Time) ReplicaStatus {
	x := ReplicaStatus{ID: id, Name: r.Name, State: ReplicaGone, Reason: r.Refused, Seen: earlier(r.heard(now), now)}
	if r.Request != nil && r.Refused == "" {
		x.Reason = "waits for an intermediate since " + r.Request.At.UTC().Format(time.RFC3339)
	}
	serves, heard := m.serves(id, r, now)
	switch {
	case serves && !heard:
		x.State, x.Seen, x.Reason = ReplicaServing, time.Time{}, "or is gone: its release does not tell others that it is there; upgrade it"
	case serves:
		x.State, x.Seen = ReplicaServing, now
		if r.Refused != "" {
			x.Reason = "gets no new intermediate: " + r.Refused
		}
	case r.Format == 0:
		x.State, x.Reason = ReplicaDamaged, "its record cannot be read: it writes it anew if it is there"
	case r.Refused != "":
		x.State = ReplicaRefused
	case r.Request != nil && now.Before(r.heard(now).Add(askingFor)):
		x.State = ReplicaAsking
	}
	for _, c := range r.certificates() {
		for _, root := range roots {
			if bytes.Equal(c.RawIssuer, root.RawSubject) && c.CheckSignatureFrom(root) == nil {
				x.Signer = CertificateStatus{Name: c.Subject.CommonName, Serial: serialText(c), Root: RootID(root),
					NotAfter: c.NotAfter, Renew: half(c)}
			}
		}
	}
	return x
}
