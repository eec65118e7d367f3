package main

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/ashore-mesh/ashore/ca"
	"github.com/ashore-mesh/ashore/push"
	"github.com/ashore-mesh/ashore/xds"
)

const (
	// trustRetry is after how long revocations are read again that could not be.
	trustRetry = time.Second
	// bundlePace is how often is looked which bundles proxies have acknowledged while some have
	// not, or a rotation may wait to hear of those that connect, bundleIdle otherwise.
	bundlePace = 2 * time.Second
	bundleIdle = time.Minute
)

// trust tells the assembler whom workloads believe, and the streams that one of theirs may be
// revoked.
type trust struct {
	identity    *identity
	out         chan *push.Trust
	connections push.ConnectionBounds // of callers that show a certificate
}

// run tells, anew on each change of roots or revocations, until ctx ends.
func (t *trust) run(ctx context.Context) error {
	roots, changed := t.identity.manager.Changed(ctx), t.identity.ledger.Watch(ctx)
	var told, next *push.Trust
	read := true
	for {
		var retry <-chan time.Time
		if read {
			found, err := t.read(ctx)
			switch {
			case err == nil:
				read, next = false, sameTrust(told, found)
			case ctx.Err() == nil:
				t.identity.log.Error("revocations cannot be read: those that were read last stay in force",
					"error", err)
				retry = time.After(trustRetry)
			}
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
		case <-retry:
		}
	}
}

// read is whom workloads believe now. Streams of who is revoked end at once: they do not wait for a
// build.
func (t *trust) read(ctx context.Context) (*push.Trust, error) {
	known, err := t.identity.ledger.Revocations(ctx)
	if err != nil {
		return nil, err
	}
	if server := t.identity.fleet.Load(); server != nil {
		server.Recheck()
	}
	b := t.identity.manager.Bundle()
	out := &push.Trust{ID: b.ID, Identities: t.identity.peers.Names(known.Identities), Certificates: known.Certificates,
		Epoch:       known.Epoch,
		Connections: t.connections}
	for _, r := range b.Roots {
		out.Roots = append(out.Roots, string(ca.EncodeCertificates(r)))
	}
	return out, nil
}

// sameTrust is old where found says the same: equal things keep their pointer.
func sameTrust(old, found *push.Trust) *push.Trust {
	if old != nil && old.ID == found.ID && old.Epoch == found.Epoch && slices.Equal(old.Roots, found.Roots) &&
		slices.Equal(old.Identities, found.Identities) && slices.Equal(old.Certificates, found.Certificates) {
		return old
	}
	return found
}

// acknowledger writes into the ledger which workloads have the bundle of today, as their proxies
// say.
type acknowledger struct {
	identity *identity

	// the following belong to run
	bundle string
	known  map[string]bool // serials of certificates whose workloads were seen to have the bundle
}

// run looks from time to time until ctx ends, often while a proxy does not have the bundle.
func (a *acknowledger) run(ctx context.Context) error {
	changed := a.identity.manager.Changed(ctx)
	for {
		late, err := a.look(ctx)
		if err != nil && ctx.Err() == nil {
			a.identity.log.Warn("which roots workloads have cannot be kept", "error", err)
		}
		timer := time.NewTimer(paceOfLooks(late || err != nil, len(a.identity.manager.Bundle().Roots)))
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
	server, bundle := a.identity.fleet.Load(), a.identity.manager.Bundle().ID
	if server == nil {
		return false, nil
	}
	if bundle != a.bundle {
		a.bundle, a.known = bundle, map[string]bool{}
	}
	fresh, late := a.sort(server.Bundles())
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
	workloads, err := a.identity.ledger.Workloads(ctx)
	errs := []error{err}
	for _, w := range workloads {
		if w.Bundle != a.bundle && slices.ContainsFunc(w.Leaves, func(l ca.Leaf) bool { return serials[l.Serial] }) {
			errs = append(errs, a.identity.ledger.Acknowledge(ctx, w.Name, a.bundle))
		}
	}
	return errors.Join(errs...)
}

// cutName cuts "namespace/name".
func cutName(text string) (namespace, name string, ok bool) {
	namespace, name, ok = strings.Cut(text, "/")
	return namespace, name, ok && namespace != "" && name != "" && !strings.Contains(name, "/")
}
