package ca

import (
	"context"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/spiffe/go-spiffe/v2/spiffeid"

	"github.com/ashore-mesh/ashore/internal/audit"
	"github.com/ashore-mesh/ashore/internal/record"
)

// ManagerConfig is what a Manager is made of.
type ManagerConfig struct {
	// Dir is where keys are kept, readable by their owner alone: "/var/lib/ashore/ca".
	Dir string
	// Plugged is the folder of Istio's four files: ca-cert.pem, ca-key.pem, root-cert.pem,
	// cert-chain.pem. Empty: the authority is self-signed.
	Plugged string
	// TrustDomain is the mesh's: "cluster.local".
	TrustDomain string
	// KeyKind is of what kind the keys are that are made.
	KeyKind KeyKind
	// Names are the DNS names and IP addresses that the control plane is reached by, beyond
	// localhost and Istio's.
	Names []string
	// Records is what replicas share: root certificates and the state of a rotation, never keys.
	Records record.Store
	// Replica is what people call this one of several replicas, which share Records. Empty: there
	// is this one alone.
	Replica string
	// ReplicaToken is a file with a replica token: it proves to the replica that has the root's key
	// that this one belongs to the mesh. It is read when this one has no intermediate yet. Empty:
	// there is none.
	ReplicaToken string
	// ReplicaAlive says whether another replica serves, by what its ReplicaID is. Nil: it is told
	// by its record alone.
	ReplicaAlive func(id string) bool
	// ReplicaTwin is what people call another replica that serves and has the same ReplicaID as
	// this one; empty: there is none. Nil: nobody can tell.
	ReplicaTwin func() string
	// Audit is told of what is loaded and of each step of a rotation. Nil: nobody is.
	Audit func(audit.Event)
	// Log; nil logs nothing.
	Log hclog.Logger
	// Now is the clock. Nil means time.Now.
	Now func() time.Time
	// Facts are what a rotation waits for. They are asked for every few seconds while one goes on,
	// and by Show. It must not call Show or Rotate. Nil: a rotation waits for nobody.
	Facts func(context.Context) (Facts, error)
}

// Manager has what signs now, what is trusted now, and the control plane's own certificate, and
// keeps them up to date. Safe for concurrent use.
type Manager struct {
	config ManagerConfig // set once
	names  serverNames   // set once
	view   atomic.Pointer[view]

	mu      sync.Mutex  // orders changes
	own     *selfSigned // guarded by mu; nil: plugged in
	plugged *plugIn     // guarded by mu; nil: self-signed
	trouble string      // guarded by mu: why the last look failed; empty: it did not

	listening sync.Mutex
	listeners map[chan struct{}]struct{} // guarded by listening
}

// view is what is current at one moment. Immutable.
type view struct {
	signer *Signer
	bundle *Bundle
	server *tls.Certificate
	// former is what was presented before server; nil: nothing was.
	former *tls.Certificate
}

// presented is the control plane's certificate at a time. While server is not valid yet, because
// the clock was set back, it is the former one, if that is valid.
func (v *view) presented(now time.Time) *tls.Certificate {
	f := v.former
	if now.Before(v.server.Leaf.NotBefore) && f != nil && !now.Before(f.Leaf.NotBefore) && now.Before(f.Leaf.NotAfter) {
		return f
	}
	return v.server
}

// NewManager finds the authority again, or makes one in an empty folder. It returns when there is
// what to sign with. Errors say what is wrong with which file and what to do; a root is never made
// in place of a lost one.
func NewManager(ctx context.Context, c ManagerConfig) (*Manager, error) {
	m, err := newManager(c)
	if err != nil {
		return nil, err
	}
	return m, m.start(ctx)
}

// newManager is one that has not looked at anything yet.
func newManager(c ManagerConfig) (*Manager, error) {
	if td, err := spiffeid.TrustDomainFromString(c.TrustDomain); err != nil || td.Name() != c.TrustDomain {
		return nil, fmt.Errorf("%q cannot be a trust domain", c.TrustDomain)
	}
	if c.Records == nil {
		return nil, errors.New("ca: a store of records is needed")
	}
	if c.Audit == nil {
		c.Audit = func(audit.Event) {}
	}
	if c.Log == nil {
		c.Log = hclog.NewNullLogger()
	}
	if c.Now == nil {
		c.Now = time.Now
	}
	if c.Facts == nil {
		c.Facts = func(context.Context) (Facts, error) { return Facts{}, nil }
	}
	names, err := newServerNames(c.Names)
	if err != nil {
		return nil, err
	}
	m := &Manager{config: c, names: names, listeners: map[chan struct{}]struct{}{}}
	if c.Plugged != "" {
		m.plugged = &plugIn{dir: c.Plugged, records: c.Records, trustDomain: c.TrustDomain, log: c.Log, audit: c.Audit}
	} else {
		m.own = &selfSigned{dir: folder{path: c.Dir}, records: stateStore{c.Records}, trustDomain: c.TrustDomain,
			kind: c.KeyKind, log: c.Log, audit: c.Audit}
		if c.Replica != "" {
			m.own.replica = &membership{name: c.Replica, tokenFile: c.ReplicaToken, alive: c.ReplicaAlive,
				twin: c.ReplicaTwin}
		}
	}
	return m, nil
}

func (m *Manager) start(ctx context.Context) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	now := m.config.Now()
	var err error
	if m.plugged != nil {
		err = m.plugged.start(ctx, now)
	} else {
		err = m.own.start(ctx, now)
	}
	if err == nil {
		err = m.publish(now)
	}
	if err != nil {
		return fmt.Errorf("certificate authority: %w", err)
	}
	m.warnStranded(ctx, now)
	return nil
}

// Signer is what signs now. It is never nil.
func (m *Manager) Signer() *Signer { return m.view.Load().signer }

// Bundle is what is trusted now. The pointer changes when the bundle does. It is never nil.
func (m *Manager) Bundle() *Bundle { return m.view.Load().bundle }

// ServerCertificate is the control plane's own certificate, for tls.Config.GetCertificate.
func (m *Manager) ServerCertificate(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	return m.view.Load().presented(m.config.Now()), nil
}

// CreateReplicaToken makes a token that lets one more replica sign below the root that signs now:
// the text, which stands nowhere else, and when it ends. Errors: ErrReplicaToken.
func (m *Manager) CreateReplicaToken(ctx context.Context, ttl time.Duration, by string) (text string, expires time.Time,
	err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.plugged != nil {
		return "", time.Time{}, fmt.Errorf("%w: the authority is plugged in: give the new replica a folder of four files below the same root (setting ca.plugged)", ErrReplicaToken)
	}
	return m.own.createReplicaToken(ctx, ttl, by, m.config.Now())
}

// Changed tells, until ctx ends, after each change of Signer or Bundle. Several changes may be told
// at once. The channel is never closed.
func (m *Manager) Changed(ctx context.Context) <-chan struct{} {
	c := make(chan struct{}, 1)
	m.listening.Lock()
	defer m.listening.Unlock()
	m.listeners[c] = struct{}{}
	context.AfterFunc(ctx, func() {
		m.listening.Lock()
		defer m.listening.Unlock()
		delete(m.listeners, c)
	})
	return c
}

// tell tells of a change. It does not wait.
func (m *Manager) tell() {
	m.listening.Lock()
	defer m.listening.Unlock()
	for c := range m.listeners {
		select {
		case c <- struct{}{}:
		default: // it has word already
		}
	}
}

// publish makes what the authority has now current, with a certificate of the control plane that
// fits. The caller holds mu.
func (m *Manager) publish(now time.Time) error {
	v := &view{}
	if m.plugged != nil {
		v.signer, v.bundle = m.plugged.now.Signer, m.plugged.now.Bundle
	} else {
		v.signer, v.bundle = m.own.signer, m.own.bundle
	}
	was := m.view.Load()
	if was != nil && was.signer == v.signer && was.bundle == v.bundle {
		leaf := was.server.Leaf
		if now.Before(leaf.NotBefore) {
			m.config.Log.Warn("the clock was set back: the control plane's certificate is made anew",
				"begins", leaf.NotBefore)
		} else if !due(leaf, earlier(now.Add(serverLife), v.signer.Cert.NotAfter), now) {
			return nil
		}
	}
	server, err := issueServer(v.signer, v.bundle, m.config.TrustDomain, m.names, m.config.KeyKind, now, rand.Reader)
	if err != nil {
		return err
	}
	if v.server = server; was != nil {
		v.former = was.presented(now)
	}
	m.view.Store(v)
	if was == nil || was.signer != v.signer || was.bundle != v.bundle {
		m.tell()
	}
	return nil
}

// earlyServer says that the control plane's own certificate was made while the clock was ahead;
// empty: it was not.
func earlyServer(leaf *x509.Certificate, now time.Time) string {
	if !now.Before(leaf.NotBefore) {
		return ""
	}
	return fmt.Sprintf("this machine's clock was set back: it says %s, and the control plane's certificate begins at %s; "+
		"the former one is used until another is made: see that the clock is right (timedatectl, chrony)",
		now.UTC().Format(time.RFC3339), leaf.NotBefore.UTC().Format(time.RFC3339))
}
