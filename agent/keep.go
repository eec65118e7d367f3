package agent

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"slices"
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"
)

// KeeperConfig is what a Keeper is made of.
type KeeperConfig struct {
	// Dir is the state folder; whoever makes a Keeper holds its lock.
	Dir string
	// Addresses are host:port of the control planes.
	Addresses []string
	// Name is the workload's.
	Name string
	Log  hclog.Logger
}

// Keeper keeps a workload's identity: it renews the certificate at about half of its life, takes in the mesh's roots,
// and has all of it on disk before anybody uses it. Safe for concurrent use.
type Keeper struct {
	store store                                                      // guarded by saving
	ask   func(context.Context, asking) (*Identity, net.Addr, error) // set once
	name  string                                                     // set once
	clock func() time.Time                                           // set once
	log   hclog.Logger

	saving sync.Mutex // held while the disk is written

	mu       sync.Mutex
	id       *Identity                  // guarded by mu
	joined   Joined                     // guarded by mu
	due      time.Time                  // guarded by mu: of the next try
	trouble  error                      // guarded by mu: of the last try
	tries    int                        // guarded by mu: in vain since the last certificate
	renewals uint64                     // guarded by mu: since the start
	skew     time.Duration              // guarded by mu: how far this clock is ahead of the authority's, as far as that shows
	doubted  *x509.Certificate          // guarded by mu: the last one that was doubted; nil: none
	watchers map[chan struct{}]struct{} // guarded by mu
	renewed  chan struct{}              // cap 1; written when the certificate changed
	now      chan struct{}              // cap 1; written when it has to be renewed now
}

// NewKeeper reads the identity from disk; nobody is asked. Errors: that the workload has not joined, or what is wrong
// with the files and what to do.
func NewKeeper(c KeeperConfig) (*Keeper, error) {
	k := &Keeper{store: store{c.Dir}, name: c.Name, clock: time.Now, log: c.Log.Named("identity"), watchers: map[chan struct{}]struct{}{}, renewed: make(chan struct{}, 1), now: make(chan struct{}, 1)}
	id, joined, err := k.store.load()
	if err != nil {
		return nil, err
	}
	k.id, k.joined, k.skew = id, joined, clockSkew(id, joined.Renewed)
	addresses := slices.Clone(c.Addresses) // not all workloads ask the same replica
	rand.Shuffle(len(addresses), func(i, j int) { addresses[i], addresses[j] = addresses[j], addresses[i] })
	k.ask = (&authority{addresses: addresses, config: k.ClientTLS}).ask
	return k, nil
}

// Reload reads the identity again: it may have been renewed before the lock was held.
func (k *Keeper) Reload() error {
	k.saving.Lock()
	defer k.saving.Unlock()
	id, joined, err := k.store.load()
	if err != nil {
		return err
	}
	if err := k.store.clean(); err != nil {
		return diskError("remove earlier identities", err)
	}
	if id.ID != k.Identity().ID {
		return fmt.Errorf("the identity changed to %s while this agent started; start it again", id.ID)
	}
	k.replace(id, joined)
	return nil
}

// Identity is the latest one.
func (k *Keeper) Identity() *Identity {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.id
}

// Joined is how it came.
func (k *Keeper) Joined() Joined {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.joined
}

// Changed returns a channel of capacity one that is told after each change of the identity, and a function that ends
// that.
func (k *Keeper) Changed() (changed <-chan struct{}, forget func()) {
	ch := make(chan struct{}, 1)
	k.mu.Lock()
	defer k.mu.Unlock()
	k.watchers[ch] = struct{}{}
	return ch, func() {
		k.mu.Lock()
		defer k.mu.Unlock()
		delete(k.watchers, ch)
	}
}

// Renewed is told after each new certificate: connections that presented the former one may be opened anew. There is one
// channel, for one reader.
func (k *Keeper) Renewed() <-chan struct{} { return k.renewed }

// Push tells everybody who waits for a change, though there is none: Envoy gets its secrets again.
func (k *Keeper) Push() {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.tell()
}

// tell tells the watchers. Only executed with mu held.
func (k *Keeper) tell() {
	for ch := range k.watchers {
		select {
		case ch <- struct{}{}:
		default: // it has been told and did not look yet
		}
	}
}

// ClientTLS is for connections to control planes: it presents the latest certificate, and believes what leads to one of
// the latest roots and names the control plane of this workload's trust domain. Each connection needs a call of its own.
func (k *Keeper) ClientTLS() *tls.Config {
	id := k.Identity()
	c := &serverCheck{roots: id.Roots, trustDomain: id.ID.TrustDomain, now: time.Now}
	return c.config(func() *tls.Certificate { return k.Identity().Certificate() })
}

// SetRoots takes in a trust bundle, texts of PEM. One that is empty, or that cannot be read whole, is refused and
// changes nothing. One that leaves the workload's own certificate without a root is taken: somebody took that root out, and
// nobody else believes the certificate any more. A new one is asked for at once.
func (k *Keeper) SetRoots(pems []string) error {
	roots, err := parseRoots(pems)
	if err != nil {
		return fmt.Errorf("the trust bundle is refused, the former one stays: %w", err)
	}
	k.saving.Lock()
	defer k.saving.Unlock()
	id := k.Identity()
	if sameCertificates(id.Roots, roots) {
		return nil
	}
	next := id.withRoots(roots)
	if err := k.store.save(next, k.Joined()); err != nil {
		return err
	}
	k.replace(next, k.Joined())
	k.log.Info("the mesh's roots changed", "roots", len(roots), "before", len(id.Roots))
	if err := next.rooted(); err != nil {
		k.log.Error("the root of this workload's certificate was taken out of the mesh: a new certificate is asked for; join again if this goes on", "error", err)
		select {
		case k.now <- struct{}{}:
		default: // it is about to be asked for
		}
	}
	return nil
}

// doubtPause is how long a certificate is not doubted after it came: who is refused with a new one is not helped by another.
const doubtPause = time.Minute

// Doubt says that a control plane refused the certificate: its root may have been taken out of the mesh, and the stream
// that would have told so ended for it. A new one is asked for at once, one time for each certificate.
func (k *Keeper) Doubt() {
	k.mu.Lock()
	defer k.mu.Unlock()
	leaf := k.id.Leaf()
	if k.doubted == leaf || k.clock().Sub(k.joined.Renewed) < doubtPause {
		return
	}
	k.doubted = leaf
	k.log.Info("a control plane does not accept the certificate: a new one is asked for", "serial", k.id.Serial())
	select {
	case k.now <- struct{}{}:
	default: // it is about to be asked for
	}
}

// replace makes an identity that is on disk the latest one.
func (k *Keeper) replace(id *Identity, j Joined) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if id.Leaf() != k.id.Leaf() {
		select {
		case k.renewed <- struct{}{}:
		default: // it has been told and did not look yet
		}
	}
	k.id, k.joined = id, j
	k.tell()
}

// Run renews the certificate until ctx ends.
func (k *Keeper) Run(ctx context.Context) error {
	k.plan(k.clock(), true)
	for k.awaitDue(ctx) {
		err := k.renew(ctx)
		if ctx.Err() != nil {
			return nil
		}
		k.note(err)
	}
	return nil
}

// clockLook is how often the clock is looked at while nothing is due: timers stand still while a machine sleeps, and clocks
// are set.
const clockLook = time.Minute

// awaitDue waits until the certificate is to be renewed. False: ctx ended.
func (k *Keeper) awaitDue(ctx context.Context) bool {
	for ctx.Err() == nil {
		k.mu.Lock()
		left := k.due.Sub(k.clock())
		k.mu.Unlock()
		if left <= 0 {
			return true
		}
		select {
		case <-ctx.Done():
		case <-k.now:
			return true
		case <-time.After(min(left, clockLook)):
		}
	}
	return false
}

// plan says when the certificate is renewed next. start says that the agent has just begun.
func (k *Keeper) plan(now time.Time, start bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	from, end := k.span()
	k.due = renewalTime(from, end, rand.Float64())
	if late := now.Sub(k.due); start && late > 0 {
		// Many agents may begin at one moment, after a power cut.
		k.due = now.Add(time.Duration(rand.Float64() * float64(min(end.Sub(from)/100, 10*time.Second))))
	}
	k.log.Debug("the certificate is renewed in time", "at", k.due, "ends", end)
}

// span is when the certificate came and when it ends. It begins before it came, for clocks that are late. Only
// executed with mu held.
func (k *Keeper) span() (from, end time.Time) {
	leaf := k.id.Leaf()
	from, end = k.joined.Renewed, leaf.NotAfter
	if from.Before(leaf.NotBefore) || !from.Before(end) {
		from = leaf.NotBefore
	}
	return from, end
}

// renewalTime is half of a life, and up to a tenth of it earlier or later: machines that joined together do not renew
// together. random is from 0 to 1.
func renewalTime(from, end time.Time, random float64) time.Time {
	life := end.Sub(from)
	return from.Add(time.Duration(float64(life) * (0.4 + 0.2*random)))
}

// The pauses between tries in vain.
const (
	shortestRetry = time.Second
	longestRetry  = 5 * time.Minute
)

// retryPause is how long to wait after so many tries in vain: it doubles, is at most a twentieth of a life, and half
// of it is by chance. random is from 0 to 1.
func retryPause(tries int, life time.Duration, random float64) time.Duration {
	longest := min(max(life/20, shortestRetry), longestRetry)
	pause := min(shortestRetry<<min(tries-1, 20), longest)
	return pause/2 + time.Duration(random*float64(pause))
}

// renew gets a new certificate, for a new key, and keeps it.
func (k *Keeper) renew(ctx context.Context) error {
	k.saving.Lock()
	key, err := k.store.nextKey()
	k.saving.Unlock()
	if err != nil {
		return err
	}
	next, _, err := k.ask(ctx, asking{key: key, name: k.name})
	if err != nil {
		return err
	}
	return k.take(next, k.clock())
}

// take keeps a certificate that came, and uses it from then on.
func (k *Keeper) take(next *Identity, now time.Time) error {
	k.saving.Lock()
	defer k.saving.Unlock()
	if old := k.Identity(); next.ID != old.ID {
		return fmt.Errorf("the control plane gave a certificate for %s, and this workload is %s: see \"ashorectl workload list\" there", next.ID, old.ID)
	}
	if err := usableNow(next, now); err != nil {
		return err
	}
	joined := k.Joined()
	joined.Renewed = now
	if err := k.store.save(next, joined); err != nil {
		return err
	}
	k.mu.Lock()
	k.renewals++
	k.skew = clockSkew(next, now)
	k.mu.Unlock()
	k.replace(next, joined)
	k.log.Info("certificate renewed", "serial", next.Serial(), "ends", next.Leaf().NotAfter)
	return k.store.forgetKey()
}

// usableNow says what is wrong with a certificate that has just come.
func usableNow(id *Identity, now time.Time) error {
	if text := clockTrouble(id.Chain, now); text != "" {
		return serverError("%s", text)
	}
	return nil
}

// backdate is how long before its issue a certificate begins.
const backdate = 2 * time.Minute

// clockSkew is how far this machine's clock is ahead of the authority's, which has just issued the certificate. One of an
// authority that is younger than backdate begins when that does: then the issue is between there and backdate later, and
// the skew is what is certain of it.
func clockSkew(id *Identity, now time.Time) time.Duration {
	since := now.Sub(id.Leaf().NotBefore)
	if since < backdate && id.clamped() {
		return min(since, 0)
	}
	return since - backdate
}

// clamped says that the certificate begins together with its issuer.
func (i *Identity) clamped() bool {
	leaf := i.Leaf()
	return slices.ContainsFunc(slices.Concat(i.Chain[1:], i.Roots), func(c *x509.Certificate) bool {
		return bytes.Equal(c.RawSubject, leaf.RawIssuer) && c.NotBefore.Equal(leaf.NotBefore)
	})
}

// note records how a try to renew went, and plans the next.
func (k *Keeper) note(err error) {
	if err == nil {
		k.mu.Lock()
		k.trouble, k.tries = nil, 0
		k.mu.Unlock()
		k.plan(k.clock(), false)
		return
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.trouble = err
	k.tries++
	from, end := k.span()
	now := k.clock()
	pause := retryPause(k.tries, end.Sub(from), rand.Float64())
	k.due = now.Add(pause)
	left := end.Sub(now).Round(time.Second)
	var refused *RefusedError
	switch {
	case left <= 0:
		k.log.Error("the certificate has ended and cannot be renewed: others refuse this workload; join again if this goes on", "ended", end, "error", err, "next", pause)
	case errors.As(err, &refused):
		k.log.Error("the control plane does not renew the certificate", "left", left, "error", err, "next", pause)
	default:
		k.log.Warn("the certificate cannot be renewed now", "left", left, "tries", k.tries, "error", err, "next", pause)
	}
}

// Renewal is how renewing goes.
type Renewal struct {
	// Due is when it is tried next.
	Due time.Time
	// Trouble is why the last try was in vain; nil when it was not.
	Trouble error
	// Tries is how many were in vain since the last certificate came; Count how many certificates came since the start.
	Tries int
	Count uint64
	// Skew is how far this machine's clock was ahead of the authority's when the last certificate came.
	Skew time.Duration
}

// Renewal tells how it goes.
func (k *Keeper) Renewal() Renewal {
	k.mu.Lock()
	defer k.mu.Unlock()
	return Renewal{k.due, k.trouble, k.tries, k.renewals, k.skew}
}
