package agent

import (
	"context"
	"crypto/tls"
	"fmt"
	"math/rand/v2"
	"net"
	"slices"
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/ashore-mesh/ashore/internal/task"
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

// Keeper keeps a workload's identity: it renews the certificate at about half of its life, takes in
// the mesh's roots, and has all of it on disk before anybody uses it. Safe for concurrent use.
type Keeper struct {
	store store                                                                  // guarded by saving
	ask   func(context.Context, certificateRequest) (*Identity, net.Addr, error) // set once
	name  string                                                                 // set once
	clock func() time.Time                                                       // set once
	log   hclog.Logger

	saving sync.Mutex // held while the disk is written

	mu       sync.Mutex
	id       *Identity     // guarded by mu
	joined   Joined        // guarded by mu
	due      time.Time     // guarded by mu: of the next try
	trouble  error         // guarded by mu: of the last try
	tries    int           // guarded by mu: failed ones since the last certificate
	renewals uint64        // guarded by mu: since the start
	changed  chan struct{} // guarded by mu; closed and replaced when id changes
	renewed  chan struct{} // capacity 1; written when the certificate changed
	now      chan struct{} // capacity 1; written when it has to be renewed now
}

// NewKeeper reads the identity from disk; nobody is asked. Errors: that the workload has not
// joined, or what is wrong with the files and what to do.
func NewKeeper(c KeeperConfig) (*Keeper, error) {
	k := &Keeper{store: store{c.Dir}, name: c.Name, clock: time.Now, log: c.Log.Named("identity"),
		changed: make(chan struct{}), renewed: make(chan struct{}, 1), now: make(chan struct{}, 1)}
	id, joined, err := k.store.load()
	if err != nil {
		return nil, err
	}
	k.id, k.joined = id, joined
	addresses := slices.Clone(c.Addresses) // not all workloads ask the same replica
	rand.Shuffle(len(addresses), func(i, j int) { addresses[i], addresses[j] = addresses[j], addresses[i] })
	k.ask = (&authority{addresses: addresses, config: k.ClientTLS}).ask
	return k, nil
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

// Watch returns the latest identity, and a channel that is closed when there is another one.
func (k *Keeper) Watch() (*Identity, <-chan struct{}) {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.id, k.changed
}

// Renewed receives after each new certificate: connections that presented the former one may be
// replaced. There is one channel, for one reader.
func (k *Keeper) Renewed() <-chan struct{} { return k.renewed }

// ClientTLS is for connections to control planes: it presents the latest certificate, and accepts
// servers whose chain leads to one of the latest roots and that are the control plane of this
// workload's trust domain. Each connection needs a call of its own.
func (k *Keeper) ClientTLS() *tls.Config {
	id := k.Identity()
	c := &serverCheck{roots: id.Roots, trustDomain: id.ID.TrustDomain, now: time.Now}
	return c.config(func() *tls.Certificate { return k.Identity().Certificate() })
}

// SetRoots replaces the trust bundle, texts of PEM. A bundle that is empty, or that cannot be read
// whole, is refused and changes nothing. When it lacks the root of the workload's own certificate,
// peers do not accept that certificate any more: a new one is requested at once.
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
		k.log.Error("the root of this workload's certificate was removed from the mesh: a new certificate is requested; "+
			"join again if that does not help", "error", err)
		task.Poke(k.now)
	}
	return nil
}

// refusedPause is how long a new certificate is not replaced after it came, although a control
// plane refuses it.
const refusedPause = time.Minute

// Refused is called when a control plane does not accept the certificate: its root may have been
// removed from the mesh. A new one is requested at once, unless that failed already and is retried
// anyhow.
func (k *Keeper) Refused() {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.trouble != nil || k.clock().Sub(k.joined.Renewed) < refusedPause {
		return
	}
	k.log.Info("a control plane does not accept the certificate: a new one is requested", "serial", k.id.Serial())
	task.Poke(k.now)
}

// replace makes an identity that is on disk the latest one.
func (k *Keeper) replace(id *Identity, j Joined) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if id.Leaf() != k.id.Leaf() {
		task.Poke(k.renewed)
	}
	k.id, k.joined = id, j
	close(k.changed)
	k.changed = make(chan struct{})
}
