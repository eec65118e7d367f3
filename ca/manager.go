package ca

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/spiffe/go-spiffe/v2/spiffeid"

	"github.com/ashore-mesh/ashore/internal/admin"
	"github.com/ashore-mesh/ashore/internal/audit"
	"github.com/ashore-mesh/ashore/internal/record"
	"github.com/ashore-mesh/ashore/internal/task"
)

// ManagerConfig configures a Manager. TrustDomain, Records, and Dir or Plugged are required.
type ManagerConfig struct {
	// Dir is the folder of keys, which only their owner can read: "/var/lib/ashore/ca".
	Dir string
	// Plugged is the folder of Istio's four files: ca-cert.pem, ca-key.pem, root-cert.pem,
	// cert-chain.pem. Empty: the authority is self-signed.
	Plugged string
	// SignerRoots is a file with the roots of an external signer, PEM. They are in the bundle too. Empty:
	// there is none.
	SignerRoots string
	// Existing makes it an error that there is no root yet. Otherwise one is made.
	Existing bool
	// TrustDomain is the mesh's: "cluster.local".
	TrustDomain string
	// Names are the DNS names and IP addresses of the control plane besides localhost and Istio's.
	Names []string
	// Records are shared by all replicas: root certificates and the state of a rotation, never keys.
	Records record.Store
	// Address is where other replicas, which share Records, connect to this one. Empty: there are
	// none.
	Address string
	// Replicas returns the other replicas that are alive. Nil: none is known.
	Replicas func() []admin.Replica
	// Audit receives what is loaded and each step of a rotation. It may be nil.
	Audit func(audit.Event)
	// Log may be nil.
	Log hclog.Logger
	// Now is the clock. Nil means time.Now.
	Now func() time.Time
	// Dependents returns the workloads that a rotation may wait for. It is called every few seconds
	// during a rotation, and by Show. It must not call Show or Rotate. Nil: there are none.
	Dependents func(context.Context) ([]Dependent, error)
}

// authority supplies a signer and the trusted roots: from a root and an intermediate of its own, or
// from files that an operator plugged in.
type authority interface {
	// start finds them. It is called once, before the other methods.
	start(ctx context.Context, now time.Time) error
	// look renews what is due, takes files that were replaced, and continues a rotation. With an error,
	// the current signer stays usable.
	look(ctx context.Context, now time.Time) error
	// current returns the signer and the roots in use.
	current() (*Signer, *Bundle)
	// rotate begins a rotation, or forces the end of the one in progress. Errors: ErrRotate.
	rotate(ctx context.Context, r RotateRequest, now time.Time) error
	// show adds what is specific to the authority to a status.
	show(st *admin.Authority, all []Dependent, now time.Time)
}

// Manager has the signer, the trusted roots, and the control plane's own certificate, and keeps them
// up to date. Safe for concurrent use.
type Manager struct {
	config   ManagerConfig        // immutable
	names    serverNames          // immutable
	view     atomic.Pointer[view] // nil until the start
	watchers task.Broadcaster
	tokens   sync.Map // replica tokens, issuedToken by the hash of the text

	mu        sync.Mutex  // orders changes
	authority authority   // guarded by mu
	own       *selfSigned // guarded by mu; authority, or nil if that is plugged in
	signers   signerRoots // guarded by mu
	trouble   string      // guarded by mu: why the last look failed; empty: it did not
}

// view is what is in use at one moment. Immutable.
type view struct {
	signer *Signer
	bundle *Bundle
	server *tls.Certificate
}

// NewManager finds the authority, or makes one in an empty folder. It returns when it can sign.
// Errors say what is wrong with which file and what to do. A root is never made in place of a lost
// one.
func NewManager(ctx context.Context, c ManagerConfig) (*Manager, error) {
	m, err := newManager(c)
	if err != nil {
		return nil, err
	}
	return m, m.start(ctx)
}

func newManager(c ManagerConfig) (*Manager, error) {
	if td, err := spiffeid.TrustDomainFromString(c.TrustDomain); err != nil || td.Name() != c.TrustDomain {
		return nil, fmt.Errorf("%q cannot be a trust domain", c.TrustDomain)
	}
	if c.Records == nil {
		return nil, errors.New("ca: a store of records is needed")
	}
	orDefaults(&c.Audit, &c.Log, &c.Now)
	if c.Dependents == nil {
		c.Dependents = func(context.Context) ([]Dependent, error) { return nil, nil }
	}
	if c.Replicas == nil {
		c.Replicas = func() []admin.Replica { return nil }
	}
	m := &Manager{config: c, signers: signerRoots{file: c.SignerRoots}}
	m.config.Dependents = func(ctx context.Context) ([]Dependent, error) {
		all, err := c.Dependents(ctx)
		return slices.DeleteFunc(all, func(d Dependent) bool { return m.signers.contain(d.RootID) }), err
	}
	var err error
	if m.names, err = newServerNames(c.Names); err != nil {
		return nil, err
	}
	if c.Plugged != "" {
		m.authority = &plugged{config: &m.config}
	} else {
		m.own = &selfSigned{config: &m.config, dir: folder(c.Dir), view: &m.view,
			states: recordTable[State]{store: c.Records, name: "ca"}}
		m.authority = m.own
	}
	return m, nil
}

func (m *Manager) start(ctx context.Context) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	now := m.config.Now()
	err := m.authority.start(ctx, now)
	if err == nil {
		err = m.signers.read()
	}
	if err == nil {
		err = m.publish(now)
	}
	if err != nil {
		return fmt.Errorf("certificate authority: %w", err)
	}
	return nil
}

// orDefaults replaces nil by defaults: events and logs are discarded, and the clock is time.Now.
func orDefaults(record *func(audit.Event), log *hclog.Logger, now *func() time.Time) {
	if *record == nil {
		*record = func(audit.Event) {}
	}
	if *log == nil {
		*log = hclog.NewNullLogger()
	}
	if *now == nil {
		*now = time.Now
	}
}

// Signer is the signer in use. It is never nil.
func (m *Manager) Signer() *Signer { return m.view.Load().signer }

// Bundle is the trusted roots. The pointer changes when the bundle does. It is never nil.
func (m *Manager) Bundle() *Bundle { return m.view.Load().bundle }

// ServerCertificate is the control plane's own certificate, for tls.Config.GetCertificate.
func (m *Manager) ServerCertificate(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	return m.view.Load().server, nil
}

// Changed reports, until ctx ends, that Signer or Bundle has changed. Several changes may be reported
// once. The channel is never closed.
func (m *Manager) Changed(ctx context.Context) <-chan struct{} { return m.watchers.Watch(ctx) }

// publish puts what the authority has into use, with a certificate of the control plane that fits.
// The caller holds mu.
func (m *Manager) publish(now time.Time) error {
	signer, own := m.authority.current()
	v := &view{signer: signer, bundle: m.signers.join(own)}
	was := m.view.Load()
	changed := was == nil || was.signer != v.signer || was.bundle != v.bundle
	switch {
	case was != nil && !v.bundle.has(v.signer.root):
		v.server = was.server // this replica cannot sign below any trusted root
	case changed || m.serverDue(was.server.Leaf, v.signer, now):
		var err error
		if v.server, err = issueServer(v.signer, own, m.config.TrustDomain, m.names, now); err != nil {
			return err
		}
	default:
		return nil
	}
	m.view.Store(v)
	if changed {
		m.watchers.Notify()
	}
	return nil
}

// serverDue reports whether the control plane's certificate has to be replaced.
func (m *Manager) serverDue(leaf *x509.Certificate, s *Signer, now time.Time) bool {
	if now.Before(leaf.NotBefore) {
		m.config.Log.Warn("the clock was set back: the control plane's certificate is replaced",
			"begins", leaf.NotBefore)
		return true
	}
	return due(leaf, earlier(now.Add(serverLife), s.Cert.NotAfter), now)
}

// How often the authority looks: for plugged-in files that are replaced, during a rotation, and else.
const (
	pluggedInterval  = time.Second
	rotatingInterval = 5 * time.Second
	idleInterval     = 5 * time.Minute
)

// Run takes plugged-in files that are replaced, renews what signs and the control plane's
// certificate, and continues a rotation, until ctx ends. What fails is logged, shown, and tried
// again.
func (m *Manager) Run(ctx context.Context) error {
	changed := m.config.Records.Watch(ctx, "ca")
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

// look does what is due, and returns after how long to look again.
func (m *Manager) look(ctx context.Context) time.Duration {
	m.mu.Lock()
	defer m.mu.Unlock()
	err := m.refresh(ctx, m.config.Now())
	was := m.trouble
	m.trouble = ""
	if err != nil && ctx.Err() == nil {
		if m.trouble = err.Error(); m.trouble != was {
			m.config.Log.Error("the certificate authority continues with what it has", "error", err)
		}
	}
	switch {
	case m.own == nil:
		return pluggedInterval
	case m.own.state.rotating() || err != nil:
		return rotatingInterval
	}
	return idleInterval
}

// refresh has the authority look, and puts what it has into use. The caller holds mu.
func (m *Manager) refresh(ctx context.Context, now time.Time) error {
	return errors.Join(m.authority.look(ctx, now), m.signers.read(), m.publish(now))
}
