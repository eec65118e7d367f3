package server

import (
	"context"
	"slices"

	"github.com/ashore-mesh/ashore/ca"
	"github.com/ashore-mesh/ashore/push"
	"github.com/ashore-mesh/ashore/xds"
)

// trust sends the trusted roots and the revocations to the assembler.
type trust struct {
	*identity
	proxies *xds.Server
	out     chan *push.Trust
}

// runTrust adds the part that sends changes of the roots and revocations to the assembler. It
// returns the channel that the assembler reads; nil without a certificate authority.
func (s *Server) runTrust(id *identity) <-chan *push.Trust {
	if id == nil {
		return nil
	}
	t := &trust{identity: id, proxies: s.proxies, out: make(chan *push.Trust)}
	s.run("trust", t.run)
	return t.out
}

// run sends the roots and revocations after each change until ctx ends.
func (t *trust) run(ctx context.Context) error {
	roots, changed := t.manager.Changed(ctx), t.ledger.Watch(ctx)
	var sent *push.Trust
	next := t.read()
	for {
		out := t.out
		if sent != nil && equalTrust(sent, next) {
			out = nil
		}
		select {
		case <-ctx.Done():
			return nil
		case out <- next:
			sent = next
			continue
		case <-roots:
		case <-changed:
		}
		next = t.read()
	}
}

// read returns the current trust. It also ends the streams of revoked peers at once, without
// waiting for the assembler.
func (t *trust) read() *push.Trust {
	known := t.ledger.Revocations()
	t.proxies.Recheck()
	b := t.manager.Bundle()
	out := &push.Trust{ID: b.ID, Identities: known.Identities, Certificates: known.Certificates,
		Connections: push.ConnectionBounds(t.connections)}
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
