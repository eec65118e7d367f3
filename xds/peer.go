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
	"time"

	"github.com/hashicorp/go-hclog"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"

	"github.com/ashore-mesh/ashore/internal/spiffe"
	"github.com/ashore-mesh/ashore/push"
)

// Peer is who is at the other end of a stream, as far as its connection proves it.
type Peer struct {
	// Identity is what its certificate says; nobody on a connection without TLS.
	Identity spiffe.ID
	// Workload is which one of that identity it is, by its certificate: "namespace/name", the same
	// after each renewal. Empty where the certificate does not say.
	Workload string
	// Serial is its certificate's serial number in hexadecimal digits, and Expires is when the
	// certificate, or an earlier one of its chain, does; empty and zero for nobody.
	Serial  string
	Expires time.Time

	chain       []*x509.Certificate // as it was presented, the leaf first
	fingerprint string              // the SHA-256 of the leaf's DER in hexadecimal digits
}

// Leaf is its certificate, not to be changed; nil for nobody.
func (p Peer) Leaf() *x509.Certificate {
	if len(p.chain) == 0 {
		return nil
	}
	return p.chain[0]
}

// Fingerprint is the SHA-256 of its certificate's DER in hexadecimal digits; empty for nobody.
func (p Peer) Fingerprint() string { return p.fingerprint }

var (
	// errNoCertificate is why a connection with TLS proves nothing.
	errNoCertificate = errors.New("no client certificate was presented")
	// errNoVerifier is why a certificate proves nothing.
	errNoVerifier = errors.New("this server verifies no certificates")
)

// errUnauthenticated tells a client no more than it must; the log says the rest.
var errUnauthenticated = status.Error(codes.Unauthenticated,
	"authentication required: the client certificate is missing, out of date, revoked or not of this mesh")

// identify says who is at the other end. Nobody, without an error, is on a connection without TLS:
// whoever opens a listener for such decides that it may be used. Errors: what TLS proves is not
// enough.
func (s *Server) identify(ctx context.Context, now time.Time) (Peer, error) {
	p, ok := peer.FromContext(ctx)
	if !ok {
		return Peer{}, nil
	}
	if p.AuthInfo == nil {
		return Peer{}, nil
	}
	info, ok := p.AuthInfo.(credentials.TLSInfo)
	if !ok { // it is not for us to say that it may be used by anybody
		return Peer{}, fmt.Errorf("a connection secured by %q is not understood", p.AuthInfo.AuthType())
	}
	who := Peer{chain: info.State.PeerCertificates}
	if len(who.chain) == 0 {
		return Peer{}, errNoCertificate
	}
	var err error
	if who.Identity, err = s.verify(who, now); err != nil {
		return Peer{}, fmt.Errorf("%s: %w", shown(who.chain[0]), err)
	}
	if s.cfg.Workload != nil {
		who.Workload = s.cfg.Workload(who.chain[0])
	}
	sum := sha256.Sum256(who.chain[0].Raw)
	who.fingerprint = hex.EncodeToString(sum[:])
	who.Serial, who.Expires = hex.EncodeToString(who.chain[0].SerialNumber.Bytes()), who.chain[0].NotAfter
	for _, c := range who.chain[1:] {
		if c.NotAfter.Before(who.Expires) {
			who.Expires = c.NotAfter
		}
	}
	return who, nil
}

// shown is a certificate that is not believed, for people: nobody has proven what it says, or how
// long that is.
func shown(leaf *x509.Certificate) string {
	serial := leaf.SerialNumber.Bytes()
	of := "nobody"
	if id, err := spiffe.Of(leaf); err == nil {
		of = id.String()
	}
	return fmt.Sprintf("the certificate %.40s that says to be of %.300s",
		hex.EncodeToString(serial[:min(len(serial), 20)]), of)
}

// Identify says who is at the other end of a call to another service of the same gRPC server, as
// far as the connection proves it; nobody, without an error, on a connection without TLS. Errors:
// what it proves is not to be believed now.
func (s *Server) Identify(ctx context.Context) (Peer, error) { return s.identify(ctx, time.Now()) }

// logLine writes a line about the stream, unless its peer caused too many of that message.
func (st *stream) logLine(level hclog.Level, message string, facts ...any) {
	st.server.peerLog.Log(level, st.logKey(), message, facts...)
}

// logKey is whom lines about the stream are counted by. A node ID counts only where nobody proves
// who he is: with a certificate a peer may say any of its namespace.
func (st *stream) logKey() string {
	switch {
	case st.who.fingerprint != "":
		return cmp.Or(st.who.Workload, st.who.fingerprint)
	case st.proxy != nil:
		return st.proxy.ID
	}
	return hostOf(st.peer).String()
}

// verify asks whether who is to be believed now.
func (s *Server) verify(who Peer, now time.Time) (spiffe.ID, error) {
	if s.cfg.Verify == nil {
		return spiffe.ID{}, errNoVerifier
	}
	id, err := s.cfg.Verify(who.chain, now)
	if err == nil && id == (spiffe.ID{}) {
		err = errors.New("the verifier named nobody")
	}
	return id, err
}

// authorize makes of a node the one that its peer may speak for, and refuses any other. What proved
// nothing may speak for every node, as one that has no identity. Source: Istio,
// pilot/pkg/xds/auth.go.
func authorize(n *push.Node, who Peer) error {
	id := who.Identity
	if id == (spiffe.ID{}) {
		return nil
	}
	if n.Namespace != id.Namespace || n.ServiceAccount != "" && n.ServiceAccount != id.ServiceAccount {
		return status.Errorf(codes.PermissionDenied,
			"the node says namespace %q and service account %q, its certificate is of %s", n.Namespace, n.ServiceAccount, id)
	}
	n.ServiceAccount, n.Identity = shared(id.ServiceAccount), true
	return nil
}

// client names whom the stream is of, among all. A node ID is what anybody may say: only together
// with who says it does it tell one from another, or whoever knows an ID could keep its proxy out.
func (st *stream) client() string {
	return st.who.Identity.Namespace + "/" + st.who.Identity.ServiceAccount + " " + st.proxy.ID
}

// Recheck verifies every live stream anew and ends those that are not to be believed any more: to
// be called when something was revoked. It does not wait; calls while a pass is under way are one
// more pass.
func (s *Server) Recheck() {
	s.rechecks.Add(1)
	select {
	case s.recheck <- struct{}{}:
	default:
	}
}

// recheckAll is one pass. Revoked peers are expelled first, because verifying a fleet takes seconds;
// those who are revoked meanwhile do not wait for its end.
func (s *Server) recheckAll() {
	again := false
	streams := s.expelRevoked()
	for _, st := range streams {
		select {
		case <-s.recheck:
			again = true
			s.expelRevoked()
		default:
		}
		if _, err := s.verify(st.who, time.Now()); err != nil {
			st.expel(err)
		}
	}
	if again {
		s.Recheck()
	}
}

// expelRevoked ends the streams and registrations of revoked peers. It returns the streams of all
// peers with a certificate.
func (s *Server) expelRevoked() []*stream {
	streams := s.proven()
	if s.cfg.Revoked == nil {
		return streams
	}
	for _, st := range streams {
		if err := s.cfg.Revoked(st.who.Identity, st.who.fingerprint); err != nil {
			st.expel(err)
		}
	}
	s.forgetRevoked()
	return streams
}

// proven are the streams whose peers proved who they are.
func (s *Server) proven() []*stream {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := make([]*stream, 0, len(s.streams))
	for st := range s.streams {
		if st.who.chain != nil {
			out = append(out, st)
		}
	}
	return out
}

// Expel ends the streams of peers that match, and the registrations of their workloads, and tells
// them why; match is asked with s locked. It does not wait. A stream that is not taken in yet is
// asked of by Joined.
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
	default: // it ends already
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
