package server

import (
	"context"
	"errors"
	"maps"
	"slices"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/ashore-mesh/ashore/ca"
	"github.com/ashore-mesh/ashore/push"
	"github.com/ashore-mesh/ashore/xds"
)

const (
	// bundlePace is how often is looked which bundles proxies have acknowledged while some have
	// not, or a rotation may wait to hear of those that connect, bundleIdle otherwise.
	bundlePace = 2 * time.Second
	bundleIdle = time.Minute
)

// trust sends the assembler whom workloads trust.
type trust struct {
	*identity
	proxies     *xds.Server
	out         chan *push.Trust
	connections push.ConnectionBounds // of callers that show a certificate
}

// runTrust adds the parts that send changes of trust to proxies and record who has them. It returns
// what the assembler reads; nil without a certificate authority.
func (s *Server) runTrust(id *identity) <-chan *push.Trust {
	if id == nil {
		return nil
	}
	t := &trust{identity: id, proxies: s.proxies, out: make(chan *push.Trust),
		connections: push.ConnectionBounds{Age: id.connections.Age, Idle: id.connections.Idle}}
	s.run("trust", t.run)
	s.run("bundles", (&acknowledger{identity: id, proxies: s.proxies, log: s.log.Named("ca")}).run)
	return t.out
}

// run tells, anew on each change of roots or revocations, until ctx ends.
func (t *trust) run(ctx context.Context) error {
	roots, changed := t.manager.Changed(ctx), t.ledger.Watch(ctx)
	var told, next *push.Trust
	read := true
	for {
		if read {
			read, next = false, sameTrust(told, t.read())
		}
		out := t.out
		if next == told {
			out = nil // there is nothing to tell
		}
		select {
		case <-ctx.Done():
			return nil
		case out <- next:
			told = next
		case <-roots:
			read = true
		case <-changed:
			read = true
		}
	}
}

// read is whom workloads believe now. Streams of who is revoked end at once: they do not wait for a
// build.
func (t *trust) read() *push.Trust {
	known := t.ledger.Revocations()
	t.proxies.Recheck()
	b := t.manager.Bundle()
	out := &push.Trust{ID: b.ID, Identities: known.Identities, Certificates: known.Certificates,
		Connections: t.connections}
	for _, r := range b.Roots {
		out.Roots = append(out.Roots, string(ca.EncodeCertificates(r)))
	}
	return out
}

// sameTrust is old where found says the same: equal things keep their pointer.
func sameTrust(old, found *push.Trust) *push.Trust {
	if old != nil && old.ID == found.ID && slices.Equal(old.Roots, found.Roots) &&
		slices.Equal(old.Identities, found.Identities) && slices.Equal(old.Certificates, found.Certificates) {
		return old
	}
	return found
}

// acknowledger writes into the ledger which workloads have the bundle of today, as their proxies
// say.
type acknowledger struct {
	*identity
	proxies *xds.Server
	log     hclog.Logger

	// the following belong to run
	bundle string
	known  map[string]bool // serials of certificates whose workloads were seen to have the bundle
}

// run looks from time to time until ctx ends, often while a proxy does not have the bundle.
func (a *acknowledger) run(ctx context.Context) error {
	changed := a.manager.Changed(ctx)
	for {
		late, err := a.look(ctx)
		if err != nil && ctx.Err() == nil {
			a.log.Warn("which roots workloads have cannot be kept", "error", err)
		}
		timer := time.NewTimer(paceOfLooks(late || err != nil, len(a.manager.Bundle().Roots)))
		select {
		case <-ctx.Done():
			timer.Stop()
			return nil
		case <-changed:
			timer.Stop()
		case <-timer.C:
		}
	}
}

// paceOfLooks is when to look again. With several roots a rotation goes on, which may wait to hear
// of workloads that have the bundle already when they connect: nobody is late then.
func paceOfLooks(late bool, roots int) time.Duration {
	if late || roots > 1 {
		return bundlePace
	}
	return bundleIdle
}

// look looks once, and says whether a proxy that is connected is yet to have the bundle.
func (a *acknowledger) look(ctx context.Context) (late bool, err error) {
	bundle := a.manager.Bundle().ID
	if bundle != a.bundle {
		a.bundle, a.known = bundle, map[string]bool{}
	}
	fresh, late := a.sort(a.proxies.Bundles())
	if len(fresh) == 0 {
		return late, nil
	}
	if err := a.write(ctx, fresh); err != nil {
		return true, err
	}
	maps.Copy(a.known, fresh)
	return late, nil
}

// sort finds the certificates of proxies that have the bundle, as is not known yet, and says
// whether others are yet to have it. What is known of proxies that have gone is forgotten.
func (a *acknowledger) sort(proxies []xds.ProxyBundle) (fresh map[string]bool, late bool) {
	fresh = map[string]bool{}
	known := map[string]bool{}
	for _, p := range proxies {
		switch {
		case p.Who.Serial == "":
		case a.known[p.Who.Serial]:
			known[p.Who.Serial] = true
		case p.Bundle == a.bundle:
			fresh[p.Who.Serial] = true
		default:
			late = late || p.Asked
		}
	}
	a.known = known
	return fresh, late
}

// write writes that the holders of certificates have the bundle.
func (a *acknowledger) write(ctx context.Context, serials map[string]bool) error {
	workloads, err := a.ledger.Workloads(ctx)
	errs := []error{err}
	for _, w := range workloads {
		if w.Bundle != a.bundle && slices.ContainsFunc(w.Leaves, func(l ca.Leaf) bool { return serials[l.Serial] }) {
			errs = append(errs, a.ledger.Acknowledge(ctx, w.Name, a.bundle))
		}
	}
	return errors.Join(errs...)
}
