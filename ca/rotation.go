package ca

import (
	"crypto/x509"
	"fmt"
	"time"

	"github.com/ashore-mesh/ashore/internal/admin"
)

// State has the roots of the mesh: one, or two during a rotation. It holds nothing secret.
type State struct {
	// Since is when the rotation began, or when the last one ended.
	Since time.Time `json:"since"`
	// Active is the ID of the root that signs.
	Active string `json:"active"`
	// Old is the ID of the root that signed before, and that is trusted until it is retired. Empty: no
	// rotation is in progress.
	Old string `json:"old,omitempty"`
	// Roots are the certificates of both, DER by ID.
	Roots map[string][]byte `json:"roots"`
	// Cross is the key of Active certified by Old, DER. By it, machines that only trust the old root
	// accept what the new one signs.
	Cross []byte `json:"cross,omitempty"`
}

// Dependent is a workload that needs a root: its certificate in use leads to it.
type Dependent struct {
	// Workload is "namespace/name".
	Workload string
	// RootID is the ID of the root.
	RootID string
	// Until is when the workload can no longer renew the certificate.
	Until time.Time
}

// settling is how long a rotation lasts at least: a certificate that was being made when it began is
// in no index yet.
const settling = 10 * time.Second

// rotating reports whether a rotation is in progress.
func (s State) rotating() bool { return s.Old != "" }

// trusted are the ids of the roots that everybody is to trust.
func (s State) trusted() []string {
	if s.rotating() {
		return []string{s.Active, s.Old}
	}
	return []string{s.Active}
}

// waiting is what still needs the old root. A workload is waited for until it cannot come back.
func (s State) waiting(all []Dependent, now time.Time) (out []admin.Waiting) {
	if until := s.Since.Add(settling); now.Before(until) {
		out = append(out, admin.Waiting{Kind: "control plane", Name: "requests",
			Reason: "requests from before the rotation are being answered", Until: until.UTC()})
	}
	for _, d := range all {
		if d.RootID != s.Active && d.Until.After(now) {
			out = append(out, admin.Waiting{Kind: "workload", Name: d.Workload,
				Reason: "its certificate is from the old root", Until: d.Until.UTC()})
		}
	}
	return out
}

// retired is the state after the end of the rotation, whatever was waited for.
func (s State) retired(now time.Time) State {
	return State{Since: now.UTC(), Active: s.Active, Roots: map[string][]byte{s.Active: s.Roots[s.Active]}}
}

// root is one of the state's certificates.
func (s State) root(id string) (*x509.Certificate, error) {
	c, err := x509.ParseCertificate(s.Roots[id])
	if err != nil {
		return nil, fmt.Errorf("the root %s in the records: %w", id, err)
	}
	if got := RootID(c); got != id {
		return nil, fmt.Errorf("the root %s in the records is %s", id, got)
	}
	return c, nil
}

// bundle is what everybody is to trust.
func (s State) bundle() (*Bundle, error) {
	var roots []*x509.Certificate
	for _, id := range s.trusted() {
		c, err := s.root(id)
		if err != nil {
			return nil, err
		}
		roots = append(roots, c)
	}
	return NewBundle(roots...), nil
}
