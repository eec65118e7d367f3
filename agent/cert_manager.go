package agent

import (
	"context"
	"crypto/tls"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/ashore-mesh/ashore/internal/task"
)

// CertManagerConfig is what a CertManager is made of.
type CertManagerConfig struct {
	// Dir is the state folder. The caller holds its lock.
	Dir string
	// Addresses are host:port of the control planes.
	Addresses []string
	// Name is the workload's.
	Name string
	// TokenFile and Cluster are the settings xds.tokenFile and workload.cluster.
	TokenFile, Cluster string
	Log                hclog.Logger
}

// CertManager holds a workload's identity. It renews the certificate at about half of its life and
// stores the mesh's roots. Everything is on disk before it is used. Safe for concurrent use.
type CertManager struct {
	store store                                                        // guarded by saving
	ask   func(context.Context, certificateRequest) (*Identity, error) // set once
	name  string                                                       // set once
	clock func() time.Time                                             // set once
	log   hclog.Logger

	changed task.Broadcaster // notified when id changes

	saving sync.Mutex // held while the disk is written

	mu      sync.Mutex
	id      *Identity     // guarded by mu
	joined  Joined        // guarded by mu
	renewal Renewal       // guarded by mu
	renewed chan struct{} // capacity 1; written when the certificate changed
	now     chan struct{} // capacity 1; written when it has to be renewed now
}

// NewCertManager reads the identity from disk. Errors: ErrNoIdentity, or what is wrong with the
// files and what to do.
func NewCertManager(c CertManagerConfig) (*CertManager, error) {
	m := &CertManager{store: store{c.Dir}, name: c.Name, clock: time.Now, log: c.Log.Named("identity"),
		renewed: make(chan struct{}, 1), now: make(chan struct{}, 1)}
	id, joined, err := m.store.load()
	if err != nil {
		return nil, err
	}
	m.id, m.joined = id, joined
	addresses := slices.Clone(c.Addresses) // spread the workloads over the replicas
	rand.Shuffle(len(addresses), func(i, j int) { addresses[i], addresses[j] = addresses[j], addresses[i] })
	m.ask = (&authority{addresses: addresses, config: m.ClientTLS, tokenFile: c.TokenFile, cluster: c.Cluster}).ask
	return m, nil
}

// Identity is the latest one.
func (m *CertManager) Identity() *Identity {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.id
}

// Joined is how the workload joined.
func (m *CertManager) Joined() Joined {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.joined
}

// Watch returns a channel that receives after each change of the identity, until ctx ends.
func (m *CertManager) Watch(ctx context.Context) <-chan struct{} { return m.changed.Watch(ctx) }

// Renewed receives after each new certificate, so that connections with the former one can be
// replaced. It is for one reader.
func (m *CertManager) Renewed() <-chan struct{} { return m.renewed }

// ClientTLS returns the settings for one connection to a control plane. It presents the latest
// certificate. It accepts a server whose chain leads to one of the latest roots and that is the
// control plane of this workload's trust domain.
func (m *CertManager) ClientTLS() *tls.Config {
	id := m.Identity()
	c := &serverCheck{roots: id.Roots, trustDomain: id.ID.TrustDomain, now: time.Now}
	return c.config(func() *tls.Certificate { return m.Identity().Certificate() })
}

// SetRoots replaces the trust bundle, which is in PEM. An empty or unreadable bundle is refused and
// changes nothing. If the bundle lacks the root of the workload's own certificate, peers no longer
// accept that certificate, so a new one is requested at once.
func (m *CertManager) SetRoots(pems []string) error {
	roots, err := parseRoots(pems)
	if err != nil {
		return fmt.Errorf("the trust bundle is refused, the former one stays: %w", err)
	}
	m.saving.Lock()
	defer m.saving.Unlock()
	id := m.Identity()
	if id.Roots.ID == roots.ID {
		return nil
	}
	next := *id
	next.Roots = roots
	if err := m.replace(&next, m.Joined()); err != nil {
		return err
	}
	m.log.Info("the mesh's roots changed", "roots", len(roots.Roots), "before", len(id.Roots.Roots))
	if err := next.rooted(); err != nil {
		m.log.Error("the root of this workload's certificate was removed from the mesh: a new certificate is requested; "+
			"join again if that does not help", "error", err)
		task.Poke(m.now)
	}
	return nil
}

// refusedPause is the age below which a certificate is not replaced when a control plane refuses
// it.
const refusedPause = time.Minute

// Refused is called when a control plane does not accept the certificate, whose root may have been
// removed from the mesh. A new certificate is requested at once, unless renewal is being retried
// already.
func (m *CertManager) Refused() {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.renewal.Err != nil || m.clock().Sub(m.joined.Renewed) < refusedPause {
		return
	}
	m.log.Info("a control plane does not accept the certificate: a new one is requested", "serial", m.id.Serial())
	task.Poke(m.now)
}

// replace stores an identity and makes it the latest one. m.saving is held.
func (m *CertManager) replace(id *Identity, j Joined) error {
	if err := m.store.save(id, j); err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if id.Leaf() != m.id.Leaf() {
		m.renewal.Count++
		task.Poke(m.renewed)
	}
	m.id, m.joined = id, j
	m.changed.Notify()
	return nil
}
