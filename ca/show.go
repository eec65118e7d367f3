package ca

import (
	"context"
	"crypto/x509"
	"fmt"
	"strings"
	"time"

	"github.com/ashore-mesh/ashore/internal/admin"
	"github.com/ashore-mesh/ashore/internal/audit"
)

// maxWaiting bounds the list of what a rotation waits for.
const maxWaiting = 20

// SelfSigned is the kind of an authority with a root of its own.
const SelfSigned = "self-signed"

// Show returns the status for "ashorectl ca show". Errors: those of Dependents.
func (m *Manager) Show(ctx context.Context) (admin.Authority, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.show(ctx)
}

// show is Show. The caller holds mu.
func (m *Manager) show(ctx context.Context) (admin.Authority, error) {
	dependents, err := m.config.Dependents(ctx)
	if err != nil {
		return admin.Authority{}, fmt.Errorf("who depends on which root: %w", err)
	}
	now, v := m.config.Now(), m.view.Load()
	s := admin.Authority{
		TrustDomain: m.config.TrustDomain, Bundle: v.bundle.ID, PEM: v.bundle.text,
		Signer: certificateStatus(v.signer.Cert, v.signer), Server: certificateStatus(v.server.Leaf, v.signer),
	}
	s.Server.Subject, s.Server.Renew = ControlPlaneID(m.config.TrustDomain).String(), half(v.server.Leaf)
	for _, r := range v.bundle.Roots {
		root := admin.Certificate{Subject: r.Subject.CommonName, Root: RootID(r), State: "trusted",
			NotAfter: r.NotAfter}
		if r.Equal(v.signer.Root) {
			root.State = "signs"
		}
		s.Roots = append(s.Roots, root)
	}
	m.authority.show(&s, dependents, now)
	if m.signers.roots != nil {
		s.Problems = append(s.Problems, expiring(m.signers.roots.Roots, m.signers.file, now)...)
	}
	s.Problems = append(s.Problems, untrusted(dependents, v.bundle, now)...)
	if m.trouble != "" {
		s.Problems = append(s.Problems, m.trouble)
	}
	return s, nil
}

// Rotate begins a rotation of the root, or forces its end. Errors: ErrRotate.
func (m *Manager) Rotate(ctx context.Context, r RotateRequest) (admin.Authority, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	now := m.config.Now()
	if err := m.authority.rotate(ctx, r, now); err != nil {
		m.config.Audit(audit.Event{Action: audit.CARotate, Actor: r.Actor, Outcome: audit.Failed,
			Reason: strings.TrimPrefix(r.Reason+": "+err.Error(), ": "), Details: map[string]string{"step": r.step()}})
		return admin.Authority{}, err
	}
	if err := m.refresh(ctx, now); err != nil {
		return admin.Authority{}, err
	}
	return m.show(ctx)
}

func certificateStatus(c *x509.Certificate, s *Signer) admin.Certificate {
	return admin.Certificate{Subject: c.Subject.CommonName, Serial: serialText(c), Root: RootID(s.Root),
		NotAfter: c.NotAfter}
}

// show implements authority.
func (s *selfSigned) show(st *admin.Authority, all []Dependent, now time.Time) {
	st.Kind, st.Folder = SelfSigned, string(s.dir)
	st.Signer.Renew = half(s.signer.Cert)
	if s.state.rotating() {
		st.Rotation = rotation(s.state.Since, s.waiting(all, now))
	}
	st.Replicas = s.config.Replicas()
	if s.overdue != "" {
		st.Problems = append(st.Problems, s.overdue)
	}
	if left := s.signer.Root.NotAfter.Sub(now); left < rootLife/10 {
		st.Problems = append(st.Problems, fmt.Sprintf("the root ends at %s: begin a rotation",
			s.signer.Root.NotAfter.UTC().Format(time.RFC3339)))
	}
}

// rotation is the status of a rotation whose end waits for w.
func rotation(since time.Time, w []admin.Waiting) admin.Rotation {
	r := admin.Rotation{Since: since, Count: len(w), Waiting: w[:min(len(w), maxWaiting)]}
	for _, x := range w {
		if x.Until.IsZero() {
			r.Until = time.Time{}
			break
		}
		r.Until = later(r.Until, x.Until)
	}
	return r
}

// untrusted are problems with workloads whose latest certificate leads to a root that is not trusted
// any more.
func untrusted(all []Dependent, trusted *Bundle, now time.Time) []string {
	var names []string
	for _, d := range all {
		if d.Until.After(now) && !trusted.has(d.RootID) {
			names = append(names, d.Workload)
		}
	}
	if len(names) == 0 {
		return nil
	}
	return []string{fmt.Sprintf("%d workloads, such as %s, have certificates below a root that is not trusted any "+
		"more. They renew as soon as they connect; one that does not trust the root that signs has to join again, or "+
		"needs a plugged-in authority below the root that it trusts, with both roots in %s",
		len(names), names[0], pluggedRoots)}
}
