package main

import (
	"cmp"
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"sync/atomic"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	networking "istio.io/api/networking/v1alpha3"

	"github.com/ashore-mesh/ashore/ca"
	"github.com/ashore-mesh/ashore/config"
	"github.com/ashore-mesh/ashore/internal/admin"
	"github.com/ashore-mesh/ashore/internal/audit"
	"github.com/ashore-mesh/ashore/internal/jwks"
	"github.com/ashore-mesh/ashore/internal/record"
	"github.com/ashore-mesh/ashore/internal/spiffe"
	"github.com/ashore-mesh/ashore/push"
	"github.com/ashore-mesh/ashore/xds"
)

// identity is what proves, issues and revokes identities. There is none without a listener with
// TLS.
type identity struct {
	manager *ca.Manager
	ledger  *ca.Ledger
	peers   *ca.PeerVerifier
	server  *ca.Server
	jwt     *ca.JWTAttestor
	trust   *trust
	domain  string // the trust domain
	reach   reach
	own     string                  // where other replicas reach this one
	others  func() []string         // where agents reach other replicas; nil: there are none
	members atomic.Pointer[members] // nil until there is who tells
	groups  func(ctx context.Context, group string) (namespace, account string, err error)
	context func() *push.Context // the latest that was published; nil before the first
	log     hclog.Logger

	fleet    atomic.Pointer[xds.Server]   // nil until there is one
	exported atomic.Pointer[mcpPublisher] // set by serve; what other control planes get
}

// members tells of the other replicas, by what the certificate authority calls them.
type members interface {
	Alive(member string) bool
	DuplicateID() string
	// Replicas is how many there are, this one among them.
	Replicas() int
}

// identityConfig is what an identity is made of.
type identityConfig struct {
	settings settings
	// reach is where agents reach it.
	reach reach
	// own is the address of this machine itself, whatever agents are told.
	own     string
	records record.Store
	// context is the latest that was published; nil before the first.
	context func() *push.Context
	// waiting names what the first context waits for.
	waiting    func() []string
	audit      func(audit.Event)
	registerer prometheus.Registerer
	log        hclog.Logger
}

// newIdentity finds the authority, or makes one. Errors name the setting and what to do.
func newIdentity(ctx context.Context, c identityConfig) (*identity, error) {
	s := c.settings
	domain := s.mesh.Config.GetTrustDomain()
	id := &identity{log: c.log, domain: domain, context: c.context, reach: c.reach, own: c.own}
	id.groups = groupsOf(id.objects, c.waiting)
	var err error
	id.ledger, err = ca.NewLedger(ctx, ca.LedgerConfig{Records: c.records, Dir: filepath.Join(s.State, "ca"),
		TrustDomain: domain, Groups: id.groups, Grace: s.CA.grace(), Connections: s.CA.connections(),
		Present: id.present, Replaced: id.replaced, Audit: c.audit, Log: c.log})
	if err != nil {
		return nil, fmt.Errorf("ledger of workloads: %w", err)
	}
	bundle, signer := func() *ca.Bundle { return id.manager.Bundle() }, func() *ca.Signer { return id.manager.Signer() }
	id.peers = ca.NewPeerVerifier(ca.PeerConfig{Bundle: bundle, Signer: signer, TrustDomain: domain,
		Aliases: s.mesh.Config.GetTrustDomainAliases(), Ledger: id.ledger})
	id.manager, err = ca.NewManager(ctx, ca.ManagerConfig{
		Dir: filepath.Join(s.State,
			"ca"), Plugged: s.CA.Plugged, TrustDomain: domain, KeyKind: s.CA.keyKind(), Names: s.serverNames(id.reach.addresses),
		Records: c.records, Replica: s.replicaName(id.own), ReplicaAlive: id.serves, ReplicaTwin: id.twin, ReplicaToken: s.CA.ReplicaToken, Audit: c.audit, Log: c.log, Facts: id.facts,
	})
	if err != nil {
		if s.CA.Plugged != "" {
			return nil, fmt.Errorf("%w (setting ca.plugged: mend the files, or remove the setting for an authority of ashored's own)", err)
		}
		return nil, authorityError(err)
	}
	if err := id.believe(s, c); err != nil {
		return nil, err
	}
	bounds := s.CA.connections()
	id.trust = &trust{identity: id, out: make(chan *push.Trust),
		connections: push.ConnectionBounds{Age: bounds.Age, Idle: bounds.Idle}}
	return id, nil
}

// serves says whether another replica is alive.
func (id *identity) serves(member string) bool {
	m := id.members.Load()
	return m != nil && (*m).Alive(member)
}

// twin is another replica that is alive and has the same ID as this one; empty: there is none.
func (id *identity) twin() string {
	if m := id.members.Load(); m != nil {
		return (*m).DuplicateID()
	}
	return ""
}

// authorityError says of an error where it is to be mended: the file of a replica's token may be
// anywhere, and a clock is in none.
func authorityError(err error) error {
	if _, ok := errors.AsType[*ca.ReplicaTokenError](err); ok || errors.Is(err, ca.ErrClock) {
		return err
	}
	return fmt.Errorf("%w (in the state folder, setting state)", err)
}

// believe makes the server that issues, and whom it believes.
func (id *identity) believe(s settings, c identityConfig) error {
	var issuers []ca.Issuer
	for _, j := range s.Attestors.JWT {
		issuers = append(issuers, j.issuer())
	}
	var err error
	id.jwt, err = ca.NewJWTAttestor(ca.JWTConfig{Issuers: issuers, Ledger: id.ledger, Fetcher: jwks.NewFetcher(s.fetch),
		Log: c.log})
	if err != nil {
		return fmt.Errorf("setting attestors.jwt: %w", err)
	}
	attestors := []ca.Attestor{ca.NewTokenAttestor(id.ledger), ca.NewCertificateAttestor(id.peers, id.ledger), id.jwt}
	id.server, err = ca.NewServer(ca.ServerConfig{Signer: id.manager.Signer, Bundle: id.manager.Bundle,
		Rules: s.CA.rules(), Attestors: attestors,
		Ledger: id.ledger, Audit: c.audit, Log: c.log, Registerer: c.registerer})
	return err
}

// verify is who presented a chain, for the xDS server. An identity that there is not proves
// nothing.
func (id *identity) verify(chain []*x509.Certificate, now time.Time) (spiffe.ID, error) {
	if id == nil {
		return spiffe.ID{}, errors.New("there is no certificate authority")
	}
	p, err := id.peers.Verify(chain, now)
	return p.ID, err
}

// credentials returns those of the listener with TLS.
func (id *identity) credentials(limiter *connLimiter) credentials.TransportCredentials {
	return limitedTLS{credentials.NewTLS(ca.ServerTLS(id.manager.ServerCertificate)), id.verify, limiter}
}

// revoked says why an identity or a certificate counts no more. It costs next to nothing.
func (id *identity) revoked(who spiffe.ID, fingerprint string) error {
	if id == nil {
		return nil // nobody can be revoked
	}
	return id.peers.Revoked(who, fingerprint)
}

// joined says which group the workload of a certificate joined, by the ledger: its key has to be
// the one bound last.
func (id *identity) joined(ctx context.Context, leaf *x509.Certificate) (string, error) {
	w, err := id.ledger.Holds(ctx, leaf)
	if r, ok := errors.AsType[*ca.Refusal](err); ok && r.Code != codes.Unavailable {
		return "", &xds.NotJoinedError{Public: r.Public, Err: r}
	}
	return w.Group, err
}

// present says where a workload is, for who comes under its name.
func (id *identity) present(w ca.Workload) (ca.Presence, bool) {
	server := id.fleet.Load()
	if server == nil {
		return ca.Presence{}, false
	}
	p, ok := server.Present(hasLeaf(w.Leaves))
	return ca.Presence{Address: p.Address.String(), Since: p.Since, Connected: p.Connected}, ok
}

// replaced ends the streams of who lost his place to another machine, and tells him.
func (id *identity) replaced(r ca.Replacement) {
	if server := id.fleet.Load(); server != nil {
		has := hasLeaf(r.Former)
		is := func(p xds.Peer) bool {
			return has(p.Fingerprint()) || r.Key != "" && p.Leaf() != nil && ca.KeyHashOf(p.Leaf()).String() == r.Key
		}
		server.Expel(is, &xds.NotJoinedError{Public: r.Text, Err: errors.New(r.Text)})
	}
}

// hasLeaf says whether certificates have one with a fingerprint.
func hasLeaf(leaves []ca.Leaf) func(fingerprint string) bool {
	known := make(map[string]bool, len(leaves))
	for _, l := range leaves {
		known[l.SHA256] = true
	}
	return func(fingerprint string) bool { return known[fingerprint] }
}

// run adds its parts to a program.
func (id *identity) run(p *program) {
	p.run("certificate authority", id.manager.Run)
	p.run("ledger of workloads", id.ledger.Run)
	p.run("issuers of tokens", id.jwt.Run)
	p.run("trust", id.trust.run)
	p.run("bundles", (&acknowledger{identity: id}).run)
}

// trusted tells the assembler whom workloads believe; nil when there is no authority.
func (id *identity) trusted() <-chan *push.Trust {
	if id == nil {
		return nil
	}
	return id.trust.out
}

// adminConfig is what operators are answered by.
func (id *identity) adminConfig(s settings, d doors, back *backend, log hclog.Logger) admin.Config {
	c := admin.Config{Listener: d.admin, Backend: back, Audit: d.audit, Missing: noAuthority, Record: d.audit.Record,
		Log: log, Role: s.access.Role}
	if id != nil {
		o := operators{identity: id, now: time.Now}
		c.Tokens, c.Authority, c.Workloads = o, o, o
	}
	return c
}

// facts are what a rotation of the root waits for: what the ledger knows, and who is connected.
func (id *identity) facts(ctx context.Context) (ca.Facts, error) {
	f, err := id.ledger.Facts(ctx)
	if err != nil {
		return f, err
	}
	server := id.fleet.Load()
	if server == nil {
		return f, nil
	}
	for _, b := range server.Bundles() {
		// Who has no identity trusts nobody. Who never asks for roots, as Istio's agents, never
		// acknowledges any: what the ledger says of its certificate is waited for.
		if b.Who.Identity != (spiffe.ID{}) && b.Asked {
			f.Connected = append(f.Connected, ca.ProxyBundle{Name: b.Proxy, BundleID: b.Bundle})
		}
	}
	return f, nil
}

// objects are those of the latest context, and all is true. Before there is one, they are what is
// our own as far as others are told it: two control planes that need a certificate of each other
// wait for each other's objects, and none of those is what their certificates are made by.
func (id *identity) objects() (objects push.Objects, all bool) {
	if c := id.context(); c != nil {
		return c.Inputs().Objects, true
	}
	return id.exported.Load().exported(), false
}

// groupsOf looks WorkloadGroups up in objects, which may be all; if they are not, others are waited
// for.
func groupsOf(objects func() (push.Objects, bool), waiting func() []string) func(context.Context, string) (namespace,
	account string, err error) {
	return func(_ context.Context, group string) (string, string, error) {
		from, all := objects()
		o, found := from.Get(groupKey(group))
		switch {
		case !found && !all:
			return "", "", fmt.Errorf("configuration is not read yet, which waits for %s: \"ashorectl sources\" says why. A source that cannot be read before this is made needs required: false", strings.Join(waiting(), ", "))
		case !found:
			return "", "", ca.ErrNoGroup
		}
		spec, ok := o.Spec.(*networking.WorkloadGroup)
		if !ok {
			return "", "", ca.ErrNoGroup
		}
		return o.Namespace, cmp.Or(spec.GetTemplate().GetServiceAccount(), "default"), nil
	}
}

// groupKey is the key of "namespace/name"; one that nothing has when it is not of that form.
func groupKey(group string) config.Key {
	namespace, name, _ := cutName(group)
	return config.Key{Kind: config.WorkloadGroup, Namespace: namespace, Name: name}
}
