package ca

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net"
	"net/netip"
	"sync/atomic"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/emptypb"
	securityv1 "istio.io/api/security/v1alpha1"

	"github.com/ashore-mesh/ashore/internal/audit"
	"github.com/ashore-mesh/ashore/internal/ratelimit"
)

// ServerConfig says what a server signs with, whom it believes and where it writes.
type ServerConfig struct {
	// Signer and Bundle are today's.
	Signer func() *Signer
	Bundle func() *Bundle
	Rules  Rules
	Ledger *Ledger
	// Peers verifies the certificates of workloads that renew. Nil: no certificate is accepted.
	Peers *PeerVerifier
	// JWT verifies the tokens of issuers. Nil: none is accepted.
	JWT *JWTAttestor
	// Replicas issues intermediates to other replicas. Nil: nobody does.
	Replicas *Manager
	// Audit gets every certificate that is issued or refused. Nil: nobody does.
	Audit func(audit.Event)
	// Log gets what an operator must mend. Nil: nobody does.
	Log hclog.Logger
	// Registerer takes the metrics. Nil: nobody does.
	Registerer prometheus.Registerer
	// Now is the clock. Nil: time.Now.
	Now func() time.Time
}

const (
	// maxMessage bounds a request, in bytes.
	maxMessage = 64 << 10
	// defaultBodyTimeout is how long a request may take to arrive. Its call is in progress
	// meanwhile.
	defaultBodyTimeout = 5 * time.Second
)

// Server is Istio's certificate service: istio.v1.auth.IstioCertificateService. A call is
// authenticated. Then it waits for a slot of its caller, is received, and is answered. A request is
// received only after authentication, and only once its call has a slot. Safe for concurrent use.
type Server struct {
	config  ServerConfig
	metrics serverMetrics

	calls       *callLimiter
	bodyTimeout time.Duration // how long a request may take to arrive

	// Calls by source address, refused calls by source address, and calls by authenticated caller.
	byAddress, refusedByAddress, byCaller ratelimit.Limiter

	written, writtenAll ratelimit.Limiter // refusals that are written down, by address or caller, and all of them
	unwritten           atomic.Int64      // refusals that were not, since the last one that was
}

// NewServer makes a server.
func NewServer(c ServerConfig) *Server {
	orDefaults(&c.Audit, &c.Log, &c.Now)
	return &Server{
		config: c, metrics: newServerMetrics(c.Registerer), calls: newCallLimiter(), bodyTimeout: defaultBodyTimeout,
		byAddress:        ratelimit.Limiter{Burst: 4000, Every: time.Second / 500},
		refusedByAddress: ratelimit.Limiter{Burst: 200, Every: time.Second / 10},
		byCaller:         ratelimit.Limiter{Burst: 500, Every: time.Second / 50},
		written:          ratelimit.Limiter{Burst: 100, Every: 10 * time.Second},
		writtenAll:       ratelimit.Limiter{Burst: 2000, Every: time.Second / 2},
	}
}

// Register adds the service to a gRPC server.
func (s *Server) Register(g *grpc.Server) {
	d := securityv1.IstioCertificateService_ServiceDesc
	d.HandlerType, d.Methods = (*any)(nil), nil
	// Without ClientStreams gRPC would not call the server's interceptors.
	d.Streams = []grpc.StreamDesc{{StreamName: "CreateCertificate", Handler: s.serve, ClientStreams: true}}
	g.RegisterService(&d, s)
	if s.config.Replicas != nil {
		g.RegisterService(&grpc.ServiceDesc{ServiceName: replicaService, HandlerType: (*any)(nil), Streams: []grpc.StreamDesc{
			{StreamName: replicaMethod, Handler: s.serveReplica, ClientStreams: true}}}, s)
	}
}

// serve is CreateCertificate as gRPC calls it: as one of a stream, for of any other gRPC takes all
// of the request into memory before anybody is asked who it is from.
func (s *Server) serve(_ any, stream grpc.ServerStream) error {
	return s.stream(stream, s.attest, s.answer)
}

// replicaService is the service of replicas that need an intermediate.
const replicaService = "ashore.ca.v1.Replicas"

// serveReplica is CreateIntermediate as gRPC calls it.
func (s *Server) serveReplica(_ any, stream grpc.ServerStream) error {
	return s.stream(stream, s.config.Replicas.attestReplica, s.answerReplica)
}

func (s *Server) stream(stream grpc.ServerStream, attest attestFunc, answer answerFunc) error {
	out, err := s.call(stream.Context(), attest, answer,
		func(into any) error { return receive(stream, into, s.bodyTimeout) })
	if err != nil {
		return err
	}
	return stream.SendMsg(out)
}

// attestFunc proves who calls. answerFunc answers a proven caller's encoded request.
type (
	attestFunc func(context.Context, Call) (*Proof, error)
	answerFunc func(ctx context.Context, c Call, p *Proof, raw []byte) (*securityv1.IstioCertificateResponse, error)
)

// answerReplica issues an intermediate to another replica.
func (s *Server) answerReplica(ctx context.Context, c Call, p *Proof, raw []byte) (*securityv1.IstioCertificateResponse,
	error) {
	r, err := parseMessage(raw)
	if err != nil {
		return nil, err
	}
	request, err := ParseRequest([]byte(r.GetCsr()))
	if err != nil {
		return nil, err
	}
	cert, err := s.config.Replicas.issueIntermediate(ctx, p, request, c.Now)
	if err != nil {
		return nil, err
	}
	return &securityv1.IstioCertificateResponse{CertChain: []string{string(EncodeCertificates(cert))}}, nil
}

// receive waits for a request for so long. What is left of it ends with the stream.
func receive(stream grpc.ServerStream, into any, wait time.Duration) error {
	done := make(chan error, 1)
	go func() { done <- stream.RecvMsg(into) }()
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case err := <-done:
		return err
	case <-timer.C:
		return fmt.Errorf("it did not come within %s", wait)
	}
}

// call answers a call. decode receives the request; it is called for an authenticated caller alone.
func (s *Server) call(ctx context.Context, attest attestFunc, answer answerFunc, decode func(any) error) (
	*securityv1.IstioCertificateResponse, error) {
	c := s.callOf(ctx)
	begin := time.Now()
	defer func() { s.metrics.latency.Observe(time.Since(begin).Seconds()) }()
	p, err := s.admit(ctx, c, attest)
	if err != nil {
		return nil, s.refuse(c, nil, err)
	}
	release, err := s.calls.acquire(ctx, p.Caller)
	if err != nil {
		return nil, s.refuse(c, p, err)
	}
	defer release()
	// Receive into Empty, which keeps the raw bytes: a decoded request may be many times larger.
	raw := &emptypb.Empty{}
	if err := decode(raw); err != nil {
		return nil, s.refuse(c, p, fmt.Errorf("%w: %w", ErrRequest, err))
	}
	out, err := answer(ctx, c, p, raw.ProtoReflect().GetUnknown())
	if err != nil {
		return nil, s.refuse(c, p, err)
	}
	return out, nil
}

// callOf is what gRPC says of a call.
func (s *Server) callOf(ctx context.Context) Call {
	c := Call{Now: s.config.Now()}
	if p, ok := peer.FromContext(ctx); ok {
		c.Peer, c.From = peerChain(p.AuthInfo), addressOf(p.Addr)
	}
	if md, ok := metadata.FromIncomingContext(ctx); ok {
		for _, h := range md.Get("authorization") {
			if b := bearer(h); b != "" {
				c.Bearer = b
				break
			}
		}
	}
	return c
}

// addressOf is the IP address of a connection, or the zero one: all others count as one caller.
func addressOf(a net.Addr) netip.Addr {
	if a == nil {
		return netip.Addr{}
	}
	p, err := netip.ParseAddrPort(a.String())
	if err != nil {
		return netip.Addr{}
	}
	return p.Addr().Unmap()
}

// addressKey is what calls of an address are counted by. An IPv6 address counts by its first 64
// bits: whoever has one has all of them.
func addressKey(a netip.Addr) string {
	a = a.Unmap().WithZone("")
	if a.Is6() {
		if p, err := a.Prefix(64); err == nil {
			return p.String()
		}
	}
	return a.String()
}

// busy is a refusal that has nothing to do with who calls.
func busy(public, reason string) *Refusal {
	return &Refusal{Code: codes.ResourceExhausted, Public: public, Reason: reason, Err: errors.New(public)}
}

// admit authenticates a caller who does not call too often.
func (s *Server) admit(ctx context.Context, c Call, attest attestFunc) (*Proof, error) {
	from := addressKey(c.From)
	if s.refusedByAddress.Exhausted(from, c.Now) {
		return nil, busy("too many calls from this address were refused; wait", "address refused too often")
	}
	if ok, _ := s.byAddress.Allow(from, c.Now); !ok {
		return nil, busy("too many calls come from this address; wait", "address too often")
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

// answer issues a certificate to an authenticated caller, as the encoded request asks.
func (s *Server) answer(ctx context.Context, c Call, p *Proof, raw []byte) (*securityv1.IstioCertificateResponse,
	error) {
	r, err := parseMessage(raw)
	if err != nil {
		return nil, err
	}
	ask, request, err := read(r)
	if err != nil {
		return nil, err
	}
	workload, err := p.workload(ask)
	if err != nil {
		return nil, err
	}
	signer, bundle := s.config.Signer(), s.config.Bundle()
	if !bundle.has(signer.root) {
		return nil, fmt.Errorf("%w: this replica signs below the root %s, which is not trusted any more", ErrSigner,
			signer.root)
	}
	grant := Grant{
		ID: p.ID, Workload: workload, Request: request, Validity: seconds(r.GetValidityDuration()),
	}
	leaf, err := Issue(signer, s.config.Rules, grant, c.Now)
	if err != nil {
		return nil, err
	}
	x := issued{workload: workload, proof: p, key: ask.Key, replace: ask.Replace, leaf: leaf, root: signer.root,
		bundle: bundle.ID, now: c.Now}
	if err := s.config.Ledger.enter(ctx, &x); err != nil {
		return nil, err
	}
	s.issued(c, x)
	chain := append(append(make([]string, 0, len(signer.texts)+2), string(EncodeCertificates(leaf))), signer.texts...)
	return &securityv1.IstioCertificateResponse{CertChain: append(chain, bundle.text)}, nil
}

// parseMessage decodes a request, unless it is too large.
func parseMessage(raw []byte) (*securityv1.IstioCertificateRequest, error) {
	if len(raw) > maxMessage {
		return nil, fmt.Errorf("%w: the call has %d bytes, at most %d are allowed", ErrRequest, len(raw), maxMessage)
	}
	r := &securityv1.IstioCertificateRequest{}
	if err := proto.Unmarshal(raw, r); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrRequest, err)
	}
	return r, nil
}

// read is what a request asks for. Errors: ErrRequest.
func read(r *securityv1.IstioCertificateRequest) (Ask, *Request, error) {
	fields := r.GetMetadata().GetFields()
	for _, key := range []string{"CertSigner", "ImpersonatedIdentity"} {
		if fields[key].GetStringValue() != "" {
			return Ask{}, nil, fmt.Errorf("%w: the metadata %s is not supported: a certificate is for who asks, signed "+
				"by the mesh's own authority", ErrRequest, key)
		}
	}
	request, err := ParseRequest([]byte(r.GetCsr()))
	if err != nil {
		return Ask{}, nil, err
	}
	return Ask{Key: request.KeyHash, Workload: fields["Workload"].GetStringValue(),
		Group: fields["Group"].GetStringValue(), Replace: fields["Replace"].GetBoolValue()}, request, nil
}

// seconds is a number of them as a duration, bounded by 68 years.
func seconds(n int64) time.Duration {
	return time.Duration(max(math.MinInt32, min(math.MaxInt32, n))) * time.Second
}
