package ca

import (
	"context"
	"crypto/tls"
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
	// Names are the DNS names and IP addresses that the control plane is reached by, beyond
	// localhost and Istio's.
	Names []string
	// Records is what replicas share: root certificates and the state of a rotation, never keys.
	Records record.Store
	// Address is where other replicas, which share Records, reach this one. Empty: there are none.
	Address string
	// Replicas are the other ones that are alive. Nil: none is known.
	Replicas func() []Replica
	// ReplicaToken is a file with a replica token: it proves to the replica that has the root's key
	// that this one belongs to the mesh. It is read when this one has no intermediate yet. Empty:
	// there is none.
	ReplicaToken string
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

// authority is where a signer and the trusted roots come from: a root and an intermediate of its
// own, or files that an operator plugged in.
type authority interface {
	// start finds them. It is called once, before the others.
	start(ctx context.Context, now time.Time) error
	// look renews it, takes files that were replaced, and leads a rotation on. With an error, what
	// was current stays usable.
	look(ctx context.Context, now time.Time) error
	// current returns the signer and the roots in use.
	current() (*Signer, *Bundle)
	// rotate begins a rotation, or forces a step of the one that goes on. Errors: ErrRotate.
	rotate(ctx context.Context, r RotateRequest, now time.Time) error
	// show adds what is the authority's own to a status.
	show(st *Status, f Facts, now time.Time)
}

// Manager has what signs now, what is trusted now, and the control plane's own certificate, and
// keeps them up to date. Safe for concurrent use.
type Manager struct {
	config ManagerConfig // set once
	names  serverNames   // set once
	view   atomic.Pointer[view]

	mu        sync.Mutex  // orders changes
	authority authority   // guarded by mu: own or plugged
	own       *selfSigned // guarded by mu; nil: plugged in
	trouble   string      // guarded by mu: why the last look failed; empty: it did not

	watchers record.Watchers // safe for concurrent use
}

// view is what is current at one moment. Immutable.
type view struct {
	signer *Signer
	bundle *Bundle
	server *tls.Certificate
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
	orDefaults(&c.Audit, &c.Log, &c.Now)
	if c.Replicas == nil {
		c.Replicas = func() []Replica { return nil }
	}
	if c.Facts == nil {
		c.Facts = func(context.Context) (Facts, error) { return Facts{}, nil }
	}
	names, err := newServerNames(c.Names)
	if err != nil {
		return nil, err
	}
	m := &Manager{config: c, names: names}
	if c.Plugged != "" {
		m.authority = &plugged{dir: c.Plugged, records: c.Records, trustDomain: c.TrustDomain, log: c.Log, audit: c.Audit}
	} else {
		m.own = &selfSigned{dir: folder(c.Dir), records: stateStore{c.Records}, trustDomain: c.TrustDomain,
			log: c.Log, audit: c.Audit, facts: c.Facts}
		if c.Address != "" {
			m.own.replicas = &replicaClient{tokenFile: c.ReplicaToken, others: c.Replicas, server: m.server}
		}
		m.authority = m.own
	}
	return m, nil
}

// orDefaults replaces nil by defaults: events and logs are discarded, and the clock is time.Now.
func orDefaults(tell *func(audit.Event), log *hclog.Logger, now *func() time.Time) {
	if *tell == nil {
		*tell = func(audit.Event) {}
	}
	if *log == nil {
		*log = hclog.NewNullLogger()
	}
	if *now == nil {
		*now = time.Now
	}
}

func (m *Manager) start(ctx context.Context) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	now := m.config.Now()
	err := m.authority.start(ctx, now)
	if err == nil {
		err = m.publish(now)
	}
	if err != nil {
		return fmt.Errorf("certificate authority: %w", err)
	}
	return nil
}

// Signer is what signs now. It is never nil.
func (m *Manager) Signer() *Signer { return m.view.Load().signer }

// Bundle is what is trusted now. The pointer changes when the bundle does. It is never nil.
func (m *Manager) Bundle() *Bundle { return m.view.Load().bundle }

// ServerCertificate is the control plane's own certificate, for tls.Config.GetCertificate.
func (m *Manager) ServerCertificate(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	return m.view.Load().server, nil
}

// server is ServerCertificate; nil at the start.
func (m *Manager) server() *tls.Certificate {
	if v := m.view.Load(); v != nil {
		return v.server
	}
	return nil
}

// Changed tells, until ctx ends, after each change of Signer or Bundle. Several changes may be told
// at once. The channel is never closed.
func (m *Manager) Changed(ctx context.Context) <-chan struct{} {
	return m.watchers.Watch(ctx, table)
}

// tell tells of a change. It does not wait.
func (m *Manager) tell() { m.watchers.Notify([]record.Write{{Key: record.Key{Table: table}}}) }

// publish makes what the authority has now current, with a certificate of the control plane that
// fits. The caller holds mu.
func (m *Manager) publish(now time.Time) error {
	v := &view{}
	v.signer, v.bundle = m.authority.current()
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
	if was != nil && !v.bundle.has(v.signer.root) {
		// This replica cannot sign below any trusted root. Whom the records trust counts all the
		// same.
		if v.server = was.server; was.bundle != v.bundle {
			m.view.Store(v)
			m.tell()
		}
		return nil
	}
	var err error
	v.server, err = issueServer(v.signer, v.bundle, m.config.TrustDomain, m.names, now)
	if err != nil {
		return err
	}
	m.view.Store(v)
	if was == nil || was.signer != v.signer || was.bundle != v.bundle {
		m.tell()
	}
	return nil
}

// How often the authority is looked after: files that are replaced are seen within pluggedPace, a
// rotation is led on at rotatingPace, and what is to be renewed is seen within idlePace.
const (
	pluggedPace  = time.Second
	rotatingPace = 5 * time.Second
	idlePace     = 5 * time.Minute
)

// Run takes plugged-in files that are replaced, renews what signs and the control plane's
// certificate, and leads a rotation on, until ctx ends. What fails is logged, shown, and tried
// again; what was current stays so.
func (m *Manager) Run(ctx context.Context) error {
	changed := m.config.Records.Watch(ctx, table)
	for {
		timer := time.NewTimer(m.look(ctx))
		select {
		case <-ctx.Done():
			timer.Stop()
			return ctx.Err()
		case <-changed:
			timer.Stop()
		case <-timer.C:
		}
	}
}

// look does what is to be done now, and returns after how long to look again.
func (m *Manager) look(ctx context.Context) time.Duration {
	m.mu.Lock()
	defer m.mu.Unlock()
	err := m.refresh(ctx, m.config.Now())
	m.note(ctx, err)
	switch {
	case m.own == nil:
		return pluggedPace
	case m.own.state.Step != None || err != nil:
		return rotatingPace
	}
	return idlePace
}

// refresh has the authority look after itself, and makes what it has now current. The caller holds
// mu.
func (m *Manager) refresh(ctx context.Context, now time.Time) error {
	return errors.Join(m.authority.look(ctx, now), m.publish(now))
}

// note remembers why a look failed, and logs it once. The caller holds mu.
func (m *Manager) note(ctx context.Context, err error) {
	text := ""
	if err != nil && ctx.Err() == nil {
		text = err.Error()
		if text != m.trouble {
			m.config.Log.Error("the certificate authority goes on with what it has", "error", err)
		}
	}
	m.trouble = text
}
