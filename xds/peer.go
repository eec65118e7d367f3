package xds

import (
	"cmp"
	"context"
	"crypto/sha256"
	"crypto/x509"
	"encoding/hex"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"github.com/hashicorp/go-hclog"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"

	"github.com/ashore-mesh/ashore/internal/connlimit"
	"github.com/ashore-mesh/ashore/internal/spiffe"
	"github.com/ashore-mesh/ashore/internal/task"
	"github.com/ashore-mesh/ashore/push"
)

// Peer is the other end of a connection, as far as its certificate or token proves it.
type Peer struct {
	// Identity is that of its certificate or token; zero on a connection without TLS.
	Identity spiffe.ID
	// Workload is that of its certificate, "namespace/name", the same after each renewal. Empty if
	// the certificate has none.
	Workload string
	// Serial is its certificate's serial number in hexadecimal digits; empty without a certificate.
	Serial string
	// Expires is when the first certificate of its chain, or its token, expires. Zero without TLS.
	Expires time.Time
	// Fingerprint is the SHA-256 of its certificate's DER in hexadecimal digits; empty without
	// a certificate.
	Fingerprint string

	chain []*x509.Certificate // the leaf first; empty: a token, or no TLS
}

var (
	errNoCertificate = errors.New("no client certificate was presented")
	errNoVerifier    = errors.New("this server verifies no certificates")
)

// publicError is what a client may know of why it is not accepted: the status in err. The log has the
// rest.
func publicError(err error) error {
	if s, ok := errors.AsType[interface {
		error
		GRPCStatus() *status.Status
	}](err); ok {
		return s.GRPCStatus().Err()
	}
	return errUnauthenticated
}

// errUnauthenticated has no details for the client; the log has them.
var errUnauthenticated = status.Error(codes.Unauthenticated,
	"authentication required: the client certificate, or the token, is missing, out of date, revoked or not of this "+
		"mesh")

// identify returns the peer of a connection. A connection without TLS has the zero Peer and no error:
// the operator who opens such a listener allows it. Errors: the certificate is not accepted.
func (s *Server) identify(ctx context.Context) (Peer, error) {
	p, ok := peer.FromContext(ctx)
	if !ok || p.AuthInfo == nil {
		return Peer{}, nil
	}
	info, ok := p.AuthInfo.(credentials.TLSInfo)
	if !ok {
		return Peer{}, fmt.Errorf("a connection secured by %q is not supported", p.AuthInfo.AuthType())
	}
	who := Peer{chain: info.State.PeerCertificates}
	if len(who.chain) == 0 {
		return s.identifyByToken(ctx)
	}
	var err error
	if who.Identity, err = s.verify(who); err != nil {
		return Peer{}, fmt.Errorf("the certificate %.20x: %w", who.chain[0].SerialNumber.Bytes(), err)
	}
	if s.cfg.Workload != nil {
		who.Workload = s.cfg.Workload(who.chain[0])
	}
	sum := sha256.Sum256(who.chain[0].Raw)
	who.Fingerprint = hex.EncodeToString(sum[:])
	who.Serial, who.Expires = hex.EncodeToString(who.chain[0].SerialNumber.Bytes()), who.chain[0].NotAfter
	for _, c := range who.chain[1:] {
		if c.NotAfter.Before(who.Expires) {
			who.Expires = c.NotAfter
		}
	}
	return who, nil
}

// identifyByToken returns the peer of a call without a client certificate. Istio's agents in Pods
// connect so. Source: Istio, XdsProxy.buildUpstreamClientDialOpts.
func (s *Server) identifyByToken(ctx context.Context) (who Peer, err error) {
	if s.cfg.Token == nil {
		return Peer{}, errNoCertificate
	}
	who.Identity, who.Expires, err = s.cfg.Token(ctx)
	if err == nil {
		err = s.verifyAgain(who)
	}
	if err != nil {
		return Peer{}, fmt.Errorf("the token: %w", err)
	}
	return who, nil
}

// logLine logs a line about the stream, unless its peer caused too many of that message.
func (st *stream) logLine(level hclog.Level, message string, facts ...any) {
	st.server.peerLog.Log(level, st.logKey(), message, facts...)
}

// logKey is the key by which log lines are limited. A node ID counts only without an identity: with
// one, a peer may name any node of its namespace, and await logs while run sets the proxy.
func (st *stream) logKey() string {
	switch {
	case st.who.Fingerprint != "":
		return cmp.Or(st.who.Workload, st.who.Fingerprint)
	case st.who.Identity != (spiffe.ID{}):
		return QuotaKey(st.who.Identity, "", connlimit.Source(st.peer))
	case st.proxy != nil:
		return st.proxy.ID
	}
	return hostOf(st.peer).String()
}

// verify verifies the certificate of who.
func (s *Server) verify(who Peer) (spiffe.ID, error) {
	if s.cfg.Verify == nil {
		return spiffe.ID{}, errNoVerifier
	}
	id, err := s.cfg.Verify(who.chain, time.Now())
	if err == nil && id == (spiffe.ID{}) {
		err = errors.New("the verifier returned no identity")
	}
	return id, err
}

// verifyAgain returns why a peer with an identity is no longer accepted. A token is good until it
// expires, unless its identity is revoked.
func (s *Server) verifyAgain(who Peer) (err error) {
	switch {
	case len(who.chain) > 0:
		_, err = s.verify(who)
	case s.cfg.Revoked != nil:
		err = s.cfg.Revoked(who.Identity, "")
	}
	return err
}

// authorize sets the identity of a node to that of its peer. Errors: the node names another one. A
// peer without a certificate may have any node, without an identity. Source: Istio,
// pilot/pkg/xds/auth.go.
func authorize(n *push.Node, who Peer) error {
	id := who.Identity
	if id == (spiffe.ID{}) {
		return nil
	}
	if n.Namespace != id.Namespace || n.ServiceAccount != "" && n.ServiceAccount != id.ServiceAccount {
		return status.Errorf(codes.PermissionDenied,
			"the node says namespace %q and service account %q, its certificate or token is of %s",
			n.Namespace, n.ServiceAccount, id)
	}
	n.ServiceAccount, n.Identity = shared(id.ServiceAccount), true
	return nil
}

// client identifies the stream's client among all. A node ID alone does not: anybody may claim one,
// and could use up its streams.
func (st *stream) client() string {
	return st.who.Identity.Namespace + "/" + st.who.Identity.ServiceAccount + " " + st.proxy.ID
}

// Recheck ends the streams of revoked peers at once, and has Run verify all others again. Call it
// when something was revoked, or the trusted authorities changed.
func (s *Server) Recheck() {
	s.rechecks.Add(1)
	if s.cfg.Revoked != nil {
		for _, st := range s.proven() {
			if err := s.cfg.Revoked(st.who.Identity, st.who.Fingerprint); err != nil {
				st.expel(err)
			}
		}
	}
	task.Poke(s.recheck)
}

// recheckAll verifies all peers again. For a large fleet it takes seconds.
func (s *Server) recheckAll() {
	for _, st := range s.proven() {
		if err := s.verifyAgain(st.who); err != nil {
			st.expel(err)
		}
	}
}

// proven are the streams whose peers have an identity.
func (s *Server) proven() []*stream {
	return slices.DeleteFunc(s.all(), func(st *stream) bool { return st.who.Identity == (spiffe.ID{}) })
}

// Expel ends the streams of peers that match, and the registrations of their workloads, with the
// reason why. match is called with s locked. It does not wait. Joined covers streams that are not
// added yet.
func (s *Server) Expel(match func(Peer) bool, why *NotJoinedError) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for st := range s.streams {
		if st.who.chain != nil && match(st.who) {
			st.expel(why)
		}
	}
}

// expel ends the stream and the registration of its workload. It does not wait.
func (st *stream) expel(why error) {
	st.expelled.Store(true)
	select {
	case st.cut <- why:
	default: // it is ending
	}
}

// hostOf is the host of "host:port"; not valid when that is none.
func hostOf(address string) netip.Addr {
	ap, err := netip.ParseAddrPort(address)
	if err != nil {
		return netip.Addr{}
	}
	return ap.Addr().Unmap()
}
