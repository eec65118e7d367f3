package ca

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/ashore-mesh/ashore/internal/spiffe"
)

// maxLeaves bounds how many certificates of one workload are valid at once: each must be known for
// as long as it can be revoked, and a workload that asks for more is broken.
const maxLeaves = 128

// maxEnded bounds how many certificates are remembered that have ended: a workload that has more of
// them at once than this waits for the oldest to be forgotten. To drop one instead would be a way
// to have a connection forgotten.
const maxEnded = 128

// Workload is what the ledger knows of one.
type Workload struct {
	// Name is "namespace/name".
	Name string `json:"-"`
	// Format is 1.
	Format int `json:"v"`
	// Identity is the SPIFFE ID that it last got a certificate for.
	Identity string `json:"identity"`
	// Group is the WorkloadGroup that it joined, "namespace/name", or empty.
	Group string `json:"group,omitempty"`
	// How it joined: "token" or "jwt".
	How string `json:"how"`
	// Key is the hash of the key of its latest certificate: with this one it may renew. Previous is
	// the one before, until Key has been used: the answer that brought Key's certificate may have
	// been lost.
	Key      string `json:"key"`
	Previous string `json:"previous,omitempty"`
	// Leaves are its certificates that have not ended, or the last one when all have; oldest first.
	Leaves []Leaf `json:"leaves"`
	// Ended are those by which a peer may still take requests, over connections from before their
	// end; oldest first.
	Ended []Leaf `json:"ended,omitempty"`
	// Bundle is the ID of the bundle that it is known to have. Offered is the latest one that it
	// was told of: it has that when it uses the key whose certificate came with it.
	Bundle  string `json:"bundle,omitempty"`
	Offered string `json:"offered,omitempty"`
	// Joined is when it proved itself otherwise than by a certificate, Renewed when it got its
	// latest certificate.
	Joined  time.Time `json:"joined"`
	Renewed time.Time `json:"renewed"`
	// Revoked says that an operator put it out.
	Revoked bool `json:"revoked,omitempty"`
}

// Leaf is a certificate that was issued.
type Leaf struct {
	// Serial is its serial number in hexadecimal digits.
	Serial string `json:"serial"`
	// SHA256 is the hash of its DER in hexadecimal digits.
	SHA256   string    `json:"sha256"`
	NotAfter time.Time `json:"notAfter"`
	// Root is the RootID of the root that it leads to; empty when it has ended and another one is
	// there.
	Root string `json:"root,omitempty"`
	// Revoked says that an operator put it out.
	Revoked bool `json:"revoked,omitempty"`
}

func (w *Workload) format() int { return w.Format }

// decodeWorkload reads a workload's record.
func decodeWorkload(name string, value []byte) (Workload, error) {
	var w Workload
	if err := decodeRecord(value, &w); err != nil {
		return Workload{}, fmt.Errorf("workload %s: %w", name, err)
	}
	if err := w.check(); err != nil {
		return Workload{}, fmt.Errorf("workload %s: its record %w", name, err)
	}
	w.Name = name
	return w, nil
}

// check says what is wrong with a workload that was read.
func (w *Workload) check() error {
	if _, err := spiffe.Parse(w.Identity); err != nil {
		return fmt.Errorf("names no identity: %w", err)
	}
	if !isHash(w.Key) || w.Previous != "" && !isHash(w.Previous) {
		return errors.New("holds no hash of a key")
	}
	for _, l := range w.Known() {
		if !isHash(l.SHA256) {
			return errors.New("holds no hash of a certificate")
		}
	}
	return nil
}

// isHash says that a text is a SHA-256 in hexadecimal digits.
func isHash(s string) bool {
	b, err := hex.DecodeString(s)
	return err == nil && len(b) == sha256.Size
}

// Expires is when its last certificate ends; zero when it has none.
func (w *Workload) Expires() time.Time {
	var last time.Time
	for _, l := range w.Leaves {
		last = later(last, l.NotAfter)
	}
	return last
}

// Known are all its certificates that matter still, those that have ended first.
func (w *Workload) Known() []Leaf { return slices.Concat(w.Ended, w.Leaves) }

// latest is the index of the leaf that ends last; -1 when there is none.
func (w *Workload) latest() int {
	last := -1
	for i, l := range w.Leaves {
		if last < 0 || l.NotAfter.After(w.Leaves[last].NotAfter) {
			last = i
		}
	}
	return last
}

// prune puts certificates that have ended apart, and forgets those that ended longer ago than
// outlive. When all have ended, the last one stays: a workload may come back with that.
func (w *Workload) prune(now time.Time, outlive time.Duration) {
	var valid, ended []Leaf
	last := w.latest()
	for i, l := range w.Leaves {
		if l.NotAfter.After(now) || i == last {
			valid = append(valid, l)
			continue
		}
		l.Root = ""
		ended = append(ended, l)
	}
	w.Leaves = valid
	w.Ended = slices.DeleteFunc(slices.Concat(w.Ended, ended),
		func(l Leaf) bool { return !l.NotAfter.Add(outlive).After(now) })
}

// replace is the workload after a new proof: the newest operator's word wins, and the keys from
// before renew no more. Their certificates stay known, for they can be revoked.
func (w Workload) replace(p *Proof, key KeyHash, now time.Time) Workload {
	if w.Key != key.String() {
		w.Bundle = ""
	}
	w.Format, w.Identity, w.Group, w.How = 1, p.ID.String(), p.Group, p.How
	w.Key, w.Previous, w.Joined = key.String(), "", now
	return w
}

// renew is the workload after a renewal with the certificate of a key that it holds.
func (w Workload) renew(p *Proof, with, key KeyHash) Workload {
	w.Identity = p.ID.String()  // of another trust domain, when the mesh got a new name
	if w.Key == with.String() { // it has what came with that key
		w.Bundle = w.Offered
	}
	switch {
	case w.Key == key.String():
	case w.Key == with.String():
		w.Previous, w.Key = w.Key, key.String()
	default: // the answer with Key was lost
		w.Key = key.String()
	}
	return w
}

// isOf says that a workload has a service account, in whichever trust domain.
func (w *Workload) isOf(id spiffe.ID) bool {
	own, err := spiffe.Parse(w.Identity)
	return err == nil && own.Namespace == id.Namespace && own.ServiceAccount == id.ServiceAccount
}

// holds says that a key may renew.
func (w *Workload) holds(key KeyHash) bool {
	k := key.String()
	return w.Key == k || w.Previous == k
}
