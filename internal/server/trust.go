package server

import (
	"context"
	"errors"
	"maps"
	"slices"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/ashore-mesh/ashore/ca"
	"github.com/ashore-mesh/ashore/internal/admin"
	"github.com/ashore-mesh/ashore/push"
	"github.com/ashore-mesh/ashore/xds"
)

// bundleInterval is how often the acknowledger records the bundles that proxies have acknowledged.
const bundleInterval = 2 * time.Second

// trust sends the trusted roots and the revocations to the assembler.
type trust struct {
	*identity
	proxies *xds.Server
	out     chan *push.Trust
}

// runTrust adds two parts: one sends changes of the roots and revocations to the assembler, the
// other records which workloads have the current roots. It returns the channel that the assembler
// reads; nil without a certificate authority.
func (s *Server) runTrust(id *identity) <-chan *push.Trust {
	if id == nil {
		return nil
	}
	t := &trust{identity: id, proxies: s.proxies, out: make(chan *push.Trust)}
	s.run("trust", t.run)
	s.run("bundles", (&acknowledger{identity: id, bundles: s.proxies.Bundles, log: s.log.Named("ca")}).run)
	return t.out
}

// run sends the roots and revocations after each change until ctx ends.
func (t *trust) run(ctx context.Context) error {
	roots, changed := t.manager.Changed(ctx), t.ledger.Watch(ctx)
	var sent *push.Trust
	for {
		out, next := t.out, t.read()
		if sent != nil && equalTrust(sent, next) {
			out = nil
		}
		select {
		case <-ctx.Done():
			return nil
		case out <- next:
			sent = next
		case <-roots:
		case <-changed:
		}
	}
}

// read returns the current trust. It also ends the streams of revoked peers at once, without
// waiting for the assembler.
func (t *trust) read() *push.Trust {
	known := t.ledger.Revocations()
	t.proxies.Recheck()
	b := t.manager.Bundle()
	out := &push.Trust{ID: b.ID, Identities: known.Identities, Certificates: known.Certificates,
		Connections: push.ConnectionBounds{Age: t.connections.Age, Idle: t.connections.Idle}}
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

// acknowledger records in the ledger which workloads' proxies have acknowledged the current bundle.
// A rotation of the root waits for these acknowledgements.
type acknowledger struct {
	*identity
	bundles func() []xds.ProxyBundle // of the connected proxies
	log     hclog.Logger
}

// run records changes every bundleInterval until ctx ends.
func (a *acknowledger) run(ctx context.Context) error {
	tick := time.NewTicker(bundleInterval)
	defer tick.Stop()
	var recorded map[string]string
	for {
		bundle := a.manager.Bundle().ID
		acknowledged := having(a.bundles(), bundle)
		if !maps.Equal(acknowledged, recorded) {
			if err := a.record(ctx, bundle, acknowledged); err == nil {
				recorded = acknowledged
			} else if ctx.Err() == nil {
				a.log.Warn("which roots workloads have cannot be recorded", "error", err)
			}
		}
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}

// having returns the serial numbers of the certificates of proxies that have acknowledged bundle.
// Each value of the map is bundle.
func having(proxies []xds.ProxyBundle, bundle string) map[string]string {
	out := map[string]string{}
	for _, p := range proxies {
		if p.Who.Serial != "" && p.Bundle == bundle {
			out[p.Who.Serial] = bundle
		}
	}
	return out
}

// record records that the workloads with these certificates have acknowledged bundle.
func (a *acknowledger) record(ctx context.Context, bundle string, serials map[string]string) error {
	workloads, err := a.ledger.Workloads(ctx)
	errs := []error{err}
	for _, w := range workloads {
		if w.Bundle != bundle && slices.ContainsFunc(w.Leaves, func(l admin.Leaf) bool { return serials[l.Serial] != "" }) {
			errs = append(errs, a.ledger.Acknowledge(ctx, w.Name, bundle))
		}
	}
	return errors.Join(errs...)
}
