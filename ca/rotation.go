package ca

import (
	"cmp"
	"crypto/x509"
	"fmt"
	"slices"
	"time"

	"github.com/ashore-mesh/ashore/internal/admin"
)

// The steps of a rotation of the root, in their order. None means that no rotation goes on.
const (
	None = ""
	// StepDistribute creates a new root and distributes it to all workloads. The old root still
	// signs.
	StepDistribute = "distribute"
	// StepActivate signs with the new root. Both are trusted.
	StepActivate = "activate"
	// StepRetire trusts only the new root.
	StepRetire = "retire"
)

// State is the state of a rotation, and the roots. It holds nothing secret.
type State struct {
	// Step is the one that was taken last; None if there is one root.
	Step string `json:"step,omitempty"`
	// Since is when Step was taken.
	Since time.Time `json:"since"`
	// Active is the ID of the root that signs.
	Active string `json:"active"`
	// Other is the root that will sign, from distribute until activate, or that signed before, from
	// activate until retire.
	Other string `json:"other,omitempty"`
	// Roots are the certificates of both, DER by ID.
	Roots map[string][]byte `json:"roots"`
	// Cross is the new root's key certified by the old root, DER, from distribute until retire. By it,
	// machines that only trust the old root accept what the new one signs.
	Cross []byte `json:"cross,omitempty"`
}

// Facts are what a rotation waits for.
type Facts struct {
	// Connected are the proxies that are connected and have an identity.
	Connected []ProxyBundle
	// Leaves are the certificates that workloads use, one of each. They are not revoked, and did not
	// expire longer ago than Grace.
	Leaves []LeafFact
	// Grace is how long a workload may renew with a certificate that has expired.
	Grace time.Duration
}

// ProxyBundle is the bundle that a connected proxy acknowledged; BundleID may be empty.
type ProxyBundle struct{ Name, BundleID string }

// LeafFact is the certificate of a workload.
type LeafFact struct {
	// Workload is "namespace/name".
	Workload string
	// RootID is the root that it leads to.
	RootID string
	// BundleID is the bundle that the workload acknowledged last.
	BundleID string
	NotAfter time.Time
}

// settling is how long a step lasts at least: a certificate that was being made when it was done is
// in nobody's facts yet.
const settling = 10 * time.Second

// following is the step after the last one.
func (s State) following() string {
	switch s.Step {
	case StepDistribute:
		return StepActivate
	case StepActivate:
		return StepRetire
	default:
		return StepDistribute
	}
}

// trusted are the ids of the roots that everybody is to trust.
func (s State) trusted() []string {
	if s.Step == None {
		return []string{s.Active}
	}
	return []string{s.Active, s.Other}
}

// waiting is what keeps the following step from being safe. Who has a certificate from the old root
// is waited for until it cannot come back: it may renew until the grace after its end is over.
func (s State) waiting(f Facts, now time.Time) []admin.Waiting {
	if s.Step == None {
		return nil
	}
	var w []admin.Waiting
	bundle := bundleID(s.trusted())
	for _, p := range f.Connected {
		if p.BundleID != bundle {
			w = append(w, admin.Waiting{Kind: "proxy", Name: p.Name,
				Reason: "connected, and has not acknowledged the bundle with both roots"})
		}
	}
	for _, l := range f.Leaves {
		until, reason := l.NotAfter.Add(f.Grace), ""
		switch {
		case s.Step == StepDistribute && l.BundleID != bundle: // it would refuse peers of the new root
			until, reason = l.NotAfter, "has a valid certificate and not the bundle with both roots"
		case s.Step == StepActivate && l.RootID != s.Active:
			reason = "its certificate is from the old root"
		case s.Step == StepActivate && l.BundleID != bundle:
			reason = "does not have the new root"
		}
		if reason != "" && until.After(now) {
			w = append(w, admin.Waiting{Kind: "workload", Name: l.Workload, Reason: reason, Until: until.UTC()})
		}
	}
	if until := s.Since.Add(settling); now.Before(until) {
		w = append(w, admin.Waiting{Kind: "control plane", Name: "requests",
			Reason: "what was asked for before this step is answered", Until: until.UTC()})
	}
	slices.SortStableFunc(w, func(a, b admin.Waiting) int {
		return cmp.Or(cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Name, b.Name))
	})
	return w
}

// done is the state after the following step, whatever was waited for.
func (s State) done(now time.Time) State {
	to := s
	to.Step, to.Since = s.following(), now.UTC()
	switch to.Step {
	case StepActivate:
		to.Active, to.Other = s.Other, s.Active
	case StepRetire:
		to.Step, to.Other, to.Cross = None, "", nil
		to.Roots = map[string][]byte{s.Active: s.Roots[s.Active]}
	}
	return to
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
