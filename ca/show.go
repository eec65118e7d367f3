package ca

import (
	"cmp"
	"context"
	"crypto/x509"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/ashore-mesh/ashore/internal/audit"
)

// maxWaiting bounds Status.Rotation.Waiting.
const maxWaiting = 20

// SelfSigned is the Status.Source of an authority with a root of its own.
const SelfSigned = "self-signed"

// Status is what "ca show" shows.
type Status struct {
	// Source is SelfSigned or "plugged-in".
	Source string
	// Folder is where its files are.
	Folder      string
	TrustDomain string
	// BundleID names the roots that are trusted now.
	BundleID string
	Roots    []CertificateStatus
	// Signer is the certificate that signs those of workloads.
	Signer CertificateStatus
	// Server is the control plane's own.
	Server   CertificateStatus
	Rotation RotationStatus
	// Replicas are the others that sign below the same root.
	Replicas []Replica
	// Problems are what an operator should act on.
	Problems []string
}

// CertificateStatus is the status of a certificate.
type CertificateStatus struct {
	Name   string
	Serial string
	// Root is the ID of the root that it leads to.
	Root string
	// State is "signs" or "trusted", for roots.
	State    string
	NotAfter time.Time
	// Renew is when it is renewed by itself; zero: its operator renews it.
	Renew time.Time
}

// RotationStatus is the status of a rotation.
type RotationStatus struct {
	// Step is the one that was taken last; empty: no rotation goes on.
	Step  Step
	Since time.Time
	// Following is the next step.
	Following Step
	// Waiting are some of those that the next step waits for, and Count is their number.
	Waiting []Waiting
	Count   int
	// Until is when the next step is taken at the latest; zero: it waits until everybody is ready.
	Until time.Time
}

// Show returns the status. Errors: those of Facts.
func (m *Manager) Show(ctx context.Context) (Status, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.show(ctx)
}

// show is Show. The caller holds mu.
func (m *Manager) show(ctx context.Context) (Status, error) {
	facts, err := m.config.Facts(ctx)
	if err != nil {
		return Status{}, fmt.Errorf("who depends on which root: %w", err)
	}
	now, v := m.config.Now(), m.view.Load()
	s := Status{
		TrustDomain: m.config.TrustDomain, BundleID: v.bundle.ID,
		Signer: certificateStatus(v.signer.Cert, v.signer), Server: certificateStatus(v.server.Leaf, v.signer),
	}
	s.Server.Name, s.Server.Renew = ControlPlaneID(m.config.TrustDomain).String(), half(v.server.Leaf)
	for _, r := range v.bundle.Roots {
		root := CertificateStatus{Name: r.Subject.CommonName, Root: RootID(r), State: "trusted", NotAfter: r.NotAfter}
		if r.Equal(v.signer.Root) {
			root.State = "signs"
		}
		s.Roots = append(s.Roots, root)
	}
	m.authority.show(&s, facts, now)
	s.Problems = append(s.Problems, facts.untrusted(v.bundle.ids, now)...)
	if m.trouble != "" {
		s.Problems = append(s.Problems, m.trouble)
	}
	return s, nil
}

// Rotate begins a rotation of the root, or forces a step, and takes all further steps that wait for
// nothing. Errors: ErrRotate.
func (m *Manager) Rotate(ctx context.Context, r RotateRequest) (Status, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	now := m.config.Now()
	if err := m.authority.rotate(ctx, r, now); err != nil {
		wanted := cmp.Or(r.Force, StepDistribute)
		m.config.Audit(audit.Event{Action: audit.CARotate, Actor: r.Actor, Outcome: audit.Failed,
			Reason: strings.TrimPrefix(r.Reason+": "+err.Error(), ": "), Details: map[string]string{"step": string(wanted)}})
		return Status{}, err
	}
	if err := m.refresh(ctx, now); err != nil {
		return Status{}, err
	}
	return m.show(ctx)
}

func certificateStatus(c *x509.Certificate, s *Signer) CertificateStatus {
	return CertificateStatus{Name: c.Subject.CommonName, Serial: serialText(c), Root: RootID(s.Root),
		NotAfter: c.NotAfter}
}

// show implements authority.
func (s *selfSigned) show(st *Status, f Facts, now time.Time) {
	st.Source, st.Folder = SelfSigned, string(s.dir)
	st.Signer.Renew = half(s.signer.Cert)
	if s.state.Step != None {
		st.Rotation = RotationStatus{Step: s.state.Step, Since: s.state.Since, Following: s.state.following()}
		st.Rotation.wait(s.waiting(f, now))
	}
	if s.replicas != nil && s.replicas.others != nil {
		st.Replicas = s.replicas.others()
	}
	if s.overdue != "" {
		st.Problems = append(st.Problems, s.overdue)
	}
	if left := s.signer.Root.NotAfter.Sub(now); left < rootLife/10 {
		st.Problems = append(st.Problems, fmt.Sprintf("the root ends at %s: begin a rotation",
			s.signer.Root.NotAfter.UTC().Format(time.RFC3339)))
	}
}

// wait adds what is waited for.
func (r *RotationStatus) wait(w []Waiting) {
	r.Count, r.Waiting = len(w), w[:min(len(w), maxWaiting)]
	for _, x := range w {
		if x.Until.IsZero() {
			r.Until = time.Time{}
			return
		}
		r.Until = later(r.Until, x.Until)
	}
}

// untrusted are problems with workloads whose latest certificate leads to a root that is not trusted
// any more.
func (f Facts) untrusted(trusted []string, now time.Time) []string {
	var names []string
	for _, l := range f.Leaves {
		if l.NotAfter.Add(f.Grace).After(now) && !slices.Contains(trusted, l.RootID) {
			names = append(names, l.Workload)
		}
	}
	if len(names) == 0 {
		return nil
	}
	const few = 5
	some := strings.Join(names[:min(few, len(names))], ", ")
	if len(names) > few {
		some += ", …"
	}
	return []string{fmt.Sprintf("%d workloads have certificates below a root that is not trusted any more (%s). "+
		"They renew as soon as they connect; one that does not trust the root that signs has to join again, or needs "+
		"a plugged-in authority below the root that it trusts, with both roots in %s",
		len(names), some, pluggedRoots)}
}
