package server

import (
	"context"
	"slices"

	"github.com/ashore-mesh/ashore/ca"
	"github.com/ashore-mesh/ashore/push"
)

// runTrust adds the part that sends the trusted roots and the revocations to the assembler. It returns
// the channel that the assembler reads; nil without a certificate authority.
func (s *Server) runTrust(id *identity) <-chan *push.Trust {
	if id == nil {
		return nil
	}
	out := make(chan *push.Trust)
	s.run("trust", func(ctx context.Context) error {
		s.sendTrust(ctx, id, out)
		return nil
	})
	return out
}

// sendTrust sends the roots and revocations after each change until ctx ends.
func (s *Server) sendTrust(ctx context.Context, id *identity, to chan<- *push.Trust) {
	roots, revocations := id.manager.Changed(ctx), id.ledger.Watch(ctx)
	sent, next := &push.Trust{}, s.trust(id)
	for {
		out := to
		if equalTrust(sent, next) {
			out = nil
		}
		select {
		case <-ctx.Done():
			return
		case out <- next:
			sent = next
			continue
		case <-roots:
		case <-revocations:
		}
		next = s.trust(id)
	}
}

// trust returns the current trust. It also ends the streams of revoked peers at once, without
// waiting for the assembler.
func (s *Server) trust(id *identity) *push.Trust {
	known := id.ledger.Revocations()
	s.proxies.Recheck()
	b := id.manager.Bundle()
	out := &push.Trust{ID: b.ID, Identities: known.Identities, Certificates: known.Certificates,
		Connections: push.ConnectionBounds(id.connections)}
	for _, r := range b.Roots {
		out.Roots = append(out.Roots, string(ca.EncodeCertificates(r)))
	}
	return out
}

// equalTrust reports whether two contents are equal. Their connection bounds always are.
func equalTrust(a, b *push.Trust) bool {
	return a.ID == b.ID && slices.Equal(a.Roots, b.Roots) && slices.Equal(a.Identities, b.Identities) &&
		slices.Equal(a.Certificates, b.Certificates)
}
