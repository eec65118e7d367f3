package ca

import (
	"cmp"
	"crypto/x509"
	"fmt"
	"slices"
	"time"
)

// Step is what a rotation of the root does.
type Step string

// The steps of a rotation, in their order. A State has the last one that was done; None stands
// between rotations.
const (
	None Step = ""
	// StepDistribute creates a new root and distributes it to all workloads. The old root still
	// signs.
	StepDistribute Step = "distribute"
	// StepActivate signs with the new root. The old one is trusted still.
	StepActivate Step = "activate"
	// StepRetire trusts the new root alone.
	StepRetire Step = "retire"
)

// State is the state of a rotation, and the roots. It holds nothing secret.
type State struct {
	// Step is the one that was done last; None when there is one root.
	Step Step `json:"step,omitempty"`
	// Since is when Step was done.
	Since time.Time `json:"since"`
	// Active is the id of the root that signs.
	Active string `json:"active"`
	// Next is the root that is to sign: from distribute until activate.
	Next string `json:"next,omitempty"`
	// Old is the root that signed before: from activate until retire.
	Old string `json:"old,omitempty"`
	// Roots are the certificates of all of them, DER by id.
	Roots map[string][]byte `json:"roots"`
	// Cross is the new root's key certified by the old root, DER, from distribute until retire:
	// those who trust the old root alone verify by it what the new one signs.
	Cross []byte `json:"cross,omitempty"`
}

// Facts are what a rotation waits for.
type Facts struct {
	// Connected are the proxies that are connected and have an identity.
	Connected []ProxyBundle
	// Leaves are the certificates that workloads use, one of each. They are neither revoked nor
	// ended longer ago than Grace.
	Leaves []LeafFact
	// Tokens are the join tokens that may still be used.
	Tokens []TokenFact
	// Grace is how long after the end of its certificate a workload may renew with it.
	Grace time.Duration
}

// ProxyBundle is which bundle a connected proxy acknowledged; BundleID is empty when none.
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

// TokenFact is a join token, which names the root that signed when it was made.
type TokenFact struct {
	ID                string
	Created, NotAfter time.Time
}

// Waiting is one thing that the next step waits for.
type Waiting struct {
	// Kind is "proxy", "workload", "token" or "control plane".
	Kind string
	Name string
	// Reason is why, for people.
	Reason string
	// Until is when it is waited for no longer; zero: until it is done.
	Until time.Time
}

// settling is how long a step lasts at least: a certificate that was being made when it was done is
// in nobody's facts yet.
const settling = 10 * time.Second

// following is the step after the last one.
func (s State) following() Step {
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
	switch s.Step {
	case StepDistribute:
		return []string{s.Active, s.Next}
	case StepActivate:
		return []string{s.Active, s.Old}
	default:
		return []string{s.Active}
	}
}

// waiting is what keeps the following step from being safe. Who has a certificate from the old root
// is waited for until it cannot come back: it may renew until the grace after its end is over.
func (s State) waiting(f Facts, now time.Time) []Waiting {
	if s.Step == None {
		return nil
	}
	var w []Waiting
	bundle := bundleID(s.trusted())
	for _, p := range f.Connected {
		if p.BundleID != bundle {
			w = append(w, Waiting{Kind: "proxy", Name: p.Name,
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
			w = append(w, Waiting{Kind: "workload", Name: l.Workload, Reason: reason, Until: until.UTC()})
		}
	}
	for _, t := range f.Tokens {
		if s.Step == StepActivate && t.Created.Before(s.Since) && t.NotAfter.After(now) {
			w = append(w, Waiting{Kind: "token", Name: t.ID, Reason: "names the old root", Until: t.NotAfter})
		}
	}
	if until := s.Since.Add(settling); now.Before(until) {
		w = append(w, Waiting{Kind: "control plane", Name: "requests",
			Reason: "what was asked for before this step is answered", Until: until.UTC()})
	}
	slices.SortStableFunc(w, func(a, b Waiting) int {
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
		to.Old, to.Active, to.Next = s.Active, s.Next, ""
	case StepRetire:
		to.Step, to.Old, to.Cross = None, "", nil
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
