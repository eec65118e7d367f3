package server

import (
	"cmp"
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"time"

	"google.golang.org/grpc/codes"
	networking "istio.io/api/networking/v1alpha3"

	"github.com/ashore-mesh/ashore/ca"
	"github.com/ashore-mesh/ashore/config"
	"github.com/ashore-mesh/ashore/internal/admin"
	"github.com/ashore-mesh/ashore/internal/feed"
	"github.com/ashore-mesh/ashore/internal/jwks"
	"github.com/ashore-mesh/ashore/internal/peername"
	"github.com/ashore-mesh/ashore/internal/settings"
	"github.com/ashore-mesh/ashore/internal/spiffe"
	"github.com/ashore-mesh/ashore/registry/entry"
	kubeidentity "github.com/ashore-mesh/ashore/registry/kube/identity"
	"github.com/ashore-mesh/ashore/registry/shared"
	"github.com/ashore-mesh/ashore/xds"
)

// identity is the certificate authority with its parts. Nil: there is none, for nothing listens
// with TLS. All fields are immutable.
type identity struct {
	manager     *ca.Manager
	ledger      *ca.Ledger
	peers       *ca.PeerVerifier
	issuer      *ca.Server
	access      *kubeidentity.Access // nil: nobody may read Secrets of a cluster
	jwt         *ca.JWTAttestor
	connections ca.Connections
}

// newIdentity finds the certificate authority, or creates one. The xDS server is built after it:
// the callbacks that need it are called only while Run runs.
func (s *Server) newIdentity(ctx context.Context, reach reach, rt *shared.Runtime) (*identity, error) {
	cfg := s.cfg
	if !cfg.Secure() {
		return nil, nil
	}
	log, records, domain := s.log.Named("ca"), s.store.Records(), cfg.MeshConfig.Config.GetTrustDomain()
	id := &identity{connections: ca.BoundConnections(cfg.CA.Validity)}
	var err error
	id.ledger, err = ca.NewLedger(ctx, ca.LedgerConfig{Records: records, Dir: authorityFolder(cfg),
		TrustDomain: domain, Aliases: cfg.MeshConfig.Config.GetTrustDomainAliases(), Groups: s.group,
		Grace: cfg.CA.Grace, Connections: id.connections, Replaced: s.replaced, Audit: s.audit.Record, Log: log})
	if err != nil {
		return nil, fmt.Errorf("tokens, workloads and revocations: %w", err)
	}
	c := s.managerConfig(reach.addresses)
	c.Plugged, c.SignerRoots, c.Existing = cfg.CA.Plugged, cfg.CA.Signer.Roots, !cfg.Development
	c.Replicas, c.Dependents = otherReplicas(rt), id.ledger.Dependents
	if cfg.Store.Shared() {
		c.Address = reach.own
	}
	if id.manager, err = ca.NewManager(ctx, c); err != nil && cfg.CA.Plugged != "" {
		return nil, fmt.Errorf("%w (setting ca.plugged: correct the files, or remove the setting)", err)
	} else if err != nil {
		return nil, err
	}
	id.peers = ca.NewPeerVerifier(id.manager.Bundle, id.ledger)
	id.jwt = ca.NewJWTAttestor(ca.JWTConfig{Issuers: cfg.Attestors.JWT, Ledger: id.ledger,
		Fetcher: jwks.NewFetcher(cfg.FetchConfig), Log: log})
	issuing := ca.ServerConfig{Signer: id.manager.Signer, Bundle: id.manager.Bundle,
		Validity: cfg.CA.Validity, Ledger: id.ledger, PeerName: s.peerName, Peers: id.peers, JWT: id.jwt,
		Replicas: id.manager, Audit: s.audit.Record, Log: log, Registerer: s.registry}
	s.useClusters(id, &issuing)
	id.issuer = ca.NewServer(issuing)
	s.reportTexts(ofAuthority, id.issuer.Problems)
	s.reportTexts(ofAuthority, id.ledger.Problems)
	s.report(func() []feed.Problem { return issuerProblems("setting attestors.jwt", id.jwt.Failures()) })
	s.run("certificate authority", id.manager.Run)
	s.run("index of workloads", id.ledger.Run)
	s.run("issuers of tokens", id.jwt.Run)
	return id, nil
}

// managerConfig is what ashored and its command init know of the authority. reached is where agents
// reach the control plane.
func (s *Server) managerConfig(reached []string) ca.ManagerConfig {
	return ca.ManagerConfig{Dir: authorityFolder(s.cfg), TrustDomain: s.cfg.MeshConfig.Config.GetTrustDomain(),
		Names: serverNames(s.cfg, reached), Records: s.store.Records(), Audit: s.audit.Record, Log: s.log.Named("ca")}
}

// serverNames are the names and addresses of the control plane's certificate, beside those that it
// always has. reached is where agents reach it.
func serverNames(cfg settings.Config, reached []string) []string {
	out := append([]string{settings.MachineName()}, cfg.CA.Names...)
	for _, address := range append(slices.Clone(reached), cfg.XDS.Address, cfg.Webhook.Address) {
		if host, _, err := net.SplitHostPort(address); err == nil && host != "" && !net.ParseIP(host).IsUnspecified() {
			out = append(out, host)
		}
	}
	return out
}

// verify returns the identity of a certificate chain.
func (id *identity) verify(chain []*x509.Certificate, now time.Time) (spiffe.ID, error) {
	p, err := id.peers.Verify(chain, now)
	return p.ID, err
}

// joined returns the group that the workload of a certificate joined, empty if it is unknown. A key
// that was replaced cannot register.
func (id *identity) joined(ctx context.Context, leaf *x509.Certificate) (string, error) {
	w, err := id.ledger.Holds(ctx, leaf)
	if r, ok := errors.AsType[*ca.Refusal](err); ok && r.Code != codes.Unavailable {
		return "", &xds.NotJoinedError{Public: r.Public, Err: r}
	}
	return w.Group, err
}

// replaced ends the streams of a workload whose name another machine took.
func (s *Server) replaced(former []admin.Leaf, text string) {
	known := make(map[string]bool, len(former))
	for _, l := range former {
		known[l.SHA256] = true
	}
	s.proxies.Expel(func(p xds.Peer) bool { return known[p.Fingerprint] },
		&xds.NotJoinedError{Public: text, Err: errors.New(text)})
}

// group returns the namespace and the service account of a WorkloadGroup. Errors: ca.ErrNoGroup.
func (s *Server) group(_ context.Context, name string) (namespace, account string, err error) {
	if s.published.Load() == nil {
		return "", "", errors.New("configuration is not read yet: \"ashorectl sources\" says why. " +
			"A source that cannot be read before this is made needs required: false")
	}
	o, spec := s.workloadGroup(name)
	if o == nil {
		return "", "", ca.ErrNoGroup
	}
	return o.Namespace, cmp.Or(spec.GetTemplate().GetServiceAccount(), "default"), nil
}

// peerName returns the name of a group's workloads in metrics; empty: there is no such group.
func (s *Server) peerName(group string) string {
	o, spec := s.workloadGroup(group)
	if o == nil {
		return ""
	}
	return peername.Of(entry.GroupLabels(spec, nil), o.Name, s.cfg.MeshConfig.Cluster()).DNS()
}

// workloadGroup returns the active WorkloadGroup "namespace/name"; nil if there is none.
func (s *Server) workloadGroup(group string) (*config.Object, *networking.WorkloadGroup) {
	namespace, name, _ := strings.Cut(group, "/")
	o := s.activeObject(config.Key{Kind: config.WorkloadGroup, Namespace: namespace, Name: name})
	if o == nil {
		return nil, nil
	}
	return o, o.Spec.(*networking.WorkloadGroup)
}
