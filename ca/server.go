package ca

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"net/netip"
	"sync/atomic"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
	"google.golang.org/protobuf/types/known/emptypb"
	securityv1 "istio.io/api/security/v1alpha1"

	"github.com/ashore-mesh/ashore/internal/audit"
	"github.com/ashore-mesh/ashore/internal/connlimit"
	"github.com/ashore-mesh/ashore/internal/ratelimit"
)

// ServerConfig configures a Server. Signer, Bundle and Ledger are required.
type ServerConfig struct {
	// Signer and Bundle return those in use.
	Signer func() *Signer
	Bundle func() *Bundle
	// External signs the certificates of workloads in place of Signer. Bundle has its roots too. Nil:
	// Signer signs.
	External ExternalSigner
	// Validity is how long certificates live, whatever a request asks for. Zero means 24h.
	Validity time.Duration
	Ledger   *Ledger
	// PeerName returns the DNS name by which metrics know the workloads of a group, of package peername;
	// empty: the group is not known now. Nil: certificates have none.
	PeerName func(group string) string
	// Peers verifies the certificates of workloads that renew. Nil: no certificate is accepted.
	Peers *PeerVerifier
	// JWT verifies the tokens of issuers. Nil: none is accepted.
	JWT *JWTAttestor
	// Reviewer reviews tokens of the clusters. Nil: none is accepted.
	Reviewer TokenReviewer
	// Replicas issues intermediates to other replicas. Nil: none are issued.
	Replicas *Manager
	// Audit receives every certificate that is issued or refused. It may be nil.
	Audit func(audit.Event)
	// Log receives what an operator has to repair. It may be nil.
	Log hclog.Logger
	// Registerer receives the metrics. It may be nil.
	Registerer prometheus.Registerer
	// Now is the clock. Nil means time.Now.
	Now func() time.Time
}

// defaultBodyTimeout is how long a request may take to arrive. Its call is in progress meanwhile.
const defaultBodyTimeout = 5 * time.Second

// Server is Istio's certificate service, istio.v1.auth.IstioCertificateService, and that for
// intermediates of replicas. A call is authenticated; then it waits for a slot; then its request is
// received and answered. Safe for concurrent use.
type Server struct {
	config      ServerConfig  // immutable
	metrics     serverMetrics // immutable
	bodyTimeout time.Duration // immutable

	calls   *callLimiter
	reviews *callLimiter // of tokens by clusters; their callers are networks
	// Refused calls by address, and calls by authenticated caller.
	refusedByAddress, byCaller ratelimit.Limiter
	externalFailure            atomic.Pointer[string] // why the external signer did not sign last; nil: it did
	// Refusals in the audit log, by address or caller, and all of them.
	written, writtenAll ratelimit.Limiter
}

// NewServer makes a server.
func NewServer(c ServerConfig) *Server {
	orDefaults(&c.Audit, &c.Log, &c.Now)
	return &Server{
		config: c, metrics: newServerMetrics(c.Registerer), calls: newCallLimiter(),
		reviews: newCallLimiter(), bodyTimeout: defaultBodyTimeout,
		refusedByAddress: ratelimit.Limiter{Burst: 200, Every: time.Second / 10},
		byCaller:         ratelimit.Limiter{Burst: 500, Every: time.Second / 50},
		written:          ratelimit.Limiter{Burst: 100, Every: 10 * time.Second},
		writtenAll:       ratelimit.Limiter{Burst: 2000, Every: time.Second / 2},
	}
}

// attestFunc authenticates a call. answerFunc answers the encoded request of an authenticated caller
// with certificates in PEM.
type (
	attestFunc func(context.Context, Call) (*Proof, error)
	answerFunc func(ctx context.Context, c Call, p *Proof, raw []byte) (certificates []string, err error)
)

// Register adds the services to a gRPC server.
func (s *Server) Register(g *grpc.Server) {
	s.register(g, securityv1.IstioCertificateService_ServiceDesc.ServiceName, "CreateCertificate", s.attest, s.answer)
	if m := s.config.Replicas; m != nil {
		s.register(g, replicaService, replicaMethod, m.attestReplica, m.answerReplica)
	}
}

// register adds a method as a stream: gRPC receives the request of any other method completely
// before it calls the server.
func (s *Server) register(g *grpc.Server, service, method string, attest attestFunc, answer answerFunc) {
	handle := func(_ any, stream grpc.ServerStream) error {
		out, err := s.call(stream.Context(), attest, answer,
			func(into any) error { return receive(stream, into, s.bodyTimeout) })
		if err != nil {
			return err
		}
		return stream.SendMsg(&securityv1.IstioCertificateResponse{CertChain: out})
	}
	// Without ClientStreams gRPC would not call the server's interceptors.
	g.RegisterService(&grpc.ServiceDesc{ServiceName: service, HandlerType: (*any)(nil),
		Streams: []grpc.StreamDesc{{StreamName: method, Handler: handle, ClientStreams: true}}}, s)
}

// receive waits for a request. After a timeout, receiving ends with the stream.
func receive(stream grpc.ServerStream, into any, timeout time.Duration) error {
	done := make(chan error, 1)
	go func() { done <- stream.RecvMsg(into) }()
	select {
	case err := <-done:
		return err
	case <-time.After(timeout):
		return fmt.Errorf("it did not come within %s", timeout)
	}
}

// call answers a call. decode receives the request; it is called only for an authenticated caller.
func (s *Server) call(ctx context.Context, attest attestFunc, answer answerFunc, decode func(any) error) (
	certificates []string, err error) {
	c := s.callOf(ctx)
	begin := time.Now()
	var p *Proof
	defer func() {
		s.metrics.latency.Observe(time.Since(begin).Seconds())
		if err != nil {
			err = s.refuse(c, p, err)
		}
	}()
	if p, err = s.admit(ctx, c, attest); err != nil {
		return nil, err
	}
	release, err := s.calls.acquire(ctx, p.Caller)
	if err != nil {
		return nil, err
	}
	defer release()
	// Receive into Empty, which keeps the raw bytes: a decoded request may be many times larger.
	raw := &emptypb.Empty{}
	if err := decode(raw); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrRequest, err)
	}
	return answer(ctx, c, p, raw.ProtoReflect().GetUnknown())
}

// callOf is what gRPC knows of a call.
func (s *Server) callOf(ctx context.Context) Call {
	c := Call{Now: s.config.Now()}
	if p, ok := peer.FromContext(ctx); ok {
		from, _ := netip.ParseAddrPort(p.Addr.String()) // a connection without one counts as the zero address
		c.From = from.Addr().Unmap()
		if t, ok := p.AuthInfo.(credentials.TLSInfo); ok {
			c.Peer = t.State.PeerCertificates
		}
	}
	if md, ok := metadata.FromIncomingContext(ctx); ok {
		for _, h := range md.Get("authorization") {
			if b := bearer(h); b != "" {
				c.Bearer = b
				break
			}
		}
		if ids := md.Get(clusterHeader); len(ids) == 1 {
			c.Cluster = ids[0]
		}
	}
	return c
}

// busy is a refusal for want of capacity.
func busy(public, reason string) *Refusal {
	return &Refusal{Code: codes.ResourceExhausted, Public: public, Reason: reason, Err: errors.New(public)}
}

// admit authenticates a caller that does not call too often.
func (s *Server) admit(ctx context.Context, c Call, attest attestFunc) (*Proof, error) {
	if s.refusedByAddress.Exhausted(connlimit.Network(c.From).String(), c.Now) {
		return nil, busy("too many calls from this address were refused; wait", "address refused too often")
	}
	p, err := attest(ctx, c)
	if err != nil {
		return nil, err
	}
	if ok, _ := s.byCaller.Allow(p.Caller, c.Now); !ok {
		return nil, busy("too many calls come from this caller; wait", "caller too often")
	}
	return p, nil
}

// answer issues a certificate to an authenticated caller.
func (s *Server) answer(ctx context.Context, c Call, p *Proof, raw []byte) ([]string, error) {
	ask, err := parseAsk(raw)
	if err != nil {
		return nil, err
	}
	workload, err := p.workload(ask)
	if err != nil {
		return nil, err
	}
	bundle := s.config.Bundle()
	var signed *signed
	if s.config.External != nil {
		workload = keyName(p.ID, ask.KeyHash) // its certificates do not name the workload
		signed, err = s.signExternally(ctx, p.ID, ask.Request, bundle)
	} else {
		signed, err = s.sign(c, p, ask, workload, bundle)
	}
	if err != nil {
		return nil, err
	}
	x := issuance{workload: workload, proof: p, ask: ask, leaf: signed.chain[0], root: signed.root, now: c.Now}
	if err := s.config.Ledger.enter(ctx, &x); err != nil {
		return nil, err
	}
	s.issued(c, &x)
	var chain []string
	for _, c := range signed.chain {
		chain = append(chain, string(EncodeCertificates(c)))
	}
	return append(chain, bundle.text), nil
}

// signed is a certificate that was signed.
type signed struct {
	chain []*x509.Certificate // the leaf first, without a root
	root  string              // the ID of the root
}

// sign signs with the authority of this replica. Errors: ErrSigner.
func (s *Server) sign(c Call, p *Proof, a *ask, workload string, bundle *Bundle) (*signed, error) {
	signer := s.config.Signer()
	if !bundle.has(signer.root) {
		return nil, fmt.Errorf("%w: this replica signs below the root %s, which is not trusted any more", ErrSigner,
			signer.root)
	}
	leaf, err := Issue(signer, Grant{ID: p.ID, Workload: workload, PeerName: s.peerName(p), Key: a.Key,
		Validity: s.config.Validity}, c.Now)
	if err != nil {
		return nil, err
	}
	return &signed{append([]*x509.Certificate{leaf}, signer.Intermediates...), signer.root}, nil
}

// peerName returns the name by which metrics know the workload of a caller: by its group, or where
// that is not known, as in the certificate with which it renews.
func (s *Server) peerName(p *Proof) string {
	name := ""
	if s.config.PeerName != nil && p.Group != "" {
		name = s.config.PeerName(p.Group)
	}
	if name == "" && p.Leaf != nil {
		name = peerName(p.Leaf)
	}
	return name
}
