package ca

import (
	"context"
	"crypto/rand"
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
	securityv1 "istio.io/api/security/v1alpha1"

	"github.com/ashore-mesh/ashore/internal/audit"
)

// ServerConfig says what a server signs with, whom it believes and where it writes.
type ServerConfig struct {
	// Signer and Bundle are today's.
	Signer func() *Signer
	Bundle func() *Bundle
	Rules  Rules
	// Attestors are asked in this order.
	Attestors []Attestor
	Ledger    *Ledger
	Limits    Limits
	// Audit gets every certificate that is issued or refused. Nil: nobody does.
	Audit func(audit.Event)
	// Log gets what an operator must mend. Nil: nobody does.
	Log hclog.Logger
	// Registerer takes the metrics. Nil: nobody does.
	Registerer prometheus.Registerer
	// Now is the clock. Nil: time.Now.
	Now func() time.Time
}

// Server is Istio's certificate service: istio.v1.auth.IstioCertificateService. A call is counted, then proven, then
// received and read, then answered: nothing that a stranger sends is taken in. Safe for concurrent use.
type Server struct {
	config  ServerConfig
	metrics *serverMetrics

	turns   *turns
	address *buckets // calls by address
	refused *buckets // refusals by address
	caller  *buckets // calls by whom they were proven to come from

	written, writtenAll *buckets     // refusals that are written down, by address or caller, and all of them
	unwritten           atomic.Int64 // refusals that were not, since the last one that was
}

// NewServer makes a server. Errors: metrics that are registered already.
func NewServer(c ServerConfig) (*Server, error) {
	c.Limits = c.Limits.withDefaults()
	if c.Audit == nil {
		c.Audit = func(audit.Event) {}
	}
	if c.Log == nil {
		c.Log = hclog.NewNullLogger()
	}
	if c.Now == nil {
		c.Now = time.Now
	}
	m, err := newServerMetrics(c.Registerer)
	if err != nil {
		return nil, err
	}
	return &Server{
		config: c, metrics: m, turns: newTurns(c.Limits),
		address: newBuckets(c.Limits.Address, c.Limits.Callers),
		refused: newBuckets(c.Limits.Refused, c.Limits.Callers),
		caller:  newBuckets(c.Limits.Caller, c.Limits.Callers),
		written: newBuckets(c.Limits.Written, c.Limits.Callers), writtenAll: newBuckets(c.Limits.WrittenAll, 1),
	}, nil
}

// Register adds the service to a gRPC server.
func (s *Server) Register(g *grpc.Server) {
	d := securityv1.IstioCertificateService_ServiceDesc
	d.HandlerType, d.Methods = (*any)(nil), nil
	d.Streams = []grpc.StreamDesc{{StreamName: "CreateCertificate", Handler: s.serve}}
	g.RegisterService(&d, s)
}

// serve is the method as gRPC calls it: as one of a stream, for of any other gRPC takes all of the request into memory
// before anybody is asked who it is from.
func (s *Server) serve(_ any, stream grpc.ServerStream) error {
	out, err := s.createCertificate(stream.Context(), func(into any) error { return receive(stream, into, s.config.Limits.Wait) })
	if err != nil {
		return err
	}
	return stream.SendMsg(out)
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
		return fmt.Errorf("%w: it did not come within %s", ErrRequest, wait)
	}
}

// createCertificate answers a call. decode is called for a proven caller alone, who takes nobody's turn until he has said
// what he wants.
func (s *Server) createCertificate(ctx context.Context, decode func(any) error) (*securityv1.IstioCertificateResponse, error) {
	c := s.callOf(ctx)
	begin := time.Now()
	s.metrics.inFlight.Inc()
	defer func() {
		s.metrics.inFlight.Dec()
		s.metrics.latency.Observe(time.Since(begin).Seconds())
	}()
	p, err := s.admit(ctx, c)
	if err != nil {
		return nil, s.refuse(c, nil, err)
	}
	r := &securityv1.IstioCertificateRequest{}
	if err := decode(r); err != nil {
		return nil, s.refuse(c, p, refuseRequest(err))
	}
	done, err := s.turn(ctx, addressKey(c.From))
	if err != nil {
		return nil, s.refuse(c, p, err)
	}
	defer done()
	out, err := s.answer(ctx, c, p, r)
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

// busy is a refusal that has nothing to do with who calls.
func busy(public, reason string) *Refusal {
	return &Refusal{Code: codes.ResourceExhausted, Public: public, Reason: reason, Err: errors.New(public)}
}

// admit counts a call, waits for its turn and proves who it comes from.
func (s *Server) admit(ctx context.Context, c Call) (*Proof, error) {
	from := addressKey(c.From)
	if !s.refused.has(from, c.Now) {
		return nil, busy("too many calls from this address were refused; wait", "address refused too often")
	}
	if !s.address.take(from, c.Now) {
		return nil, busy("too many calls come from this address; wait", "address too often")
	}
	done, err := s.turn(ctx, from)
	if err != nil {
		return nil, err
	}
	defer done()
	p, err := attest(ctx, s.config.Attestors, c)
	if err == nil && !s.caller.take(p.Caller, c.Now) {
		err = busy("too many calls come from this caller; wait", "caller too often")
	}
	return p, err
}

// turn waits until a call may be worked on.
func (s *Server) turn(ctx context.Context, from string) (done func(), err error) {
	if !s.turns.enter(from) {
		return nil, busy("too many calls wait for a certificate; try again", "too many calls")
	}
	timer := time.NewTimer(s.config.Limits.Wait)
	defer timer.Stop()
	select {
	case s.turns.work <- struct{}{}:
		return func() { <-s.turns.work; s.turns.leave(from) }, nil
	case <-timer.C:
		err = busy("too many calls wait for a certificate; try again", "too many calls")
	case <-ctx.Done():
		err = ctx.Err()
	}
	s.turns.leave(from)
	return nil, err
}

// refuseRequest is a refusal of a proven caller who asks for something wrong: he may know what.
func refuseRequest(err error) *Refusal {
	return &Refusal{Code: codes.InvalidArgument, Public: err.Error(), Reason: "bad request", Err: err}
}

// answer issues a certificate to a proven caller.
func (s *Server) answer(ctx context.Context, c Call, p *Proof, r *securityv1.IstioCertificateRequest) (*securityv1.IstioCertificateResponse, error) {
	s.metrics.requests.Inc()
	ask, request, err := s.read(r)
	if err != nil {
		return nil, refuseRequest(err)
	}
	workload, err := p.Bind(ctx, ask)
	if err != nil {
		return nil, err
	}
	if p.How == tokenAttestor {
		s.tell(c, p, audit.Event{Action: audit.TokenUse, Target: workload, Details: map[string]string{"token": p.Caller, "group": p.Group, "key": ask.Key.String()}})
	}
	signer, bundle := s.config.Signer(), s.config.Bundle()
	if !bundle.has(signer.root) {
		return nil, fmt.Errorf("%w: this replica signs below the root %s, which is not trusted any more", ErrSigner, signer.root)
	}
	leaf, err := Issue(signer, s.config.Rules, Grant{ID: p.ID, Workload: lastingName(workload), Request: request, Validity: seconds(r.GetValidityDuration())}, c.Now, rand.Reader)
	if err != nil {
		return nil, err
	}
	x := issued{workload: workload, proof: p, key: ask.Key, leaf: leaf, root: signer.root, bundle: bundle.ID, now: c.Now}
	if err := s.config.Ledger.enter(ctx, &x); err != nil {
		return nil, err
	}
	s.issued(c, x)
	chain := append(append(make([]string, 0, len(signer.texts)+2), string(EncodeCertificates(leaf))), signer.texts...)
	return &securityv1.IstioCertificateResponse{CertChain: append(chain, bundle.text)}, nil
}

// read checks all of a request that can be wrong, so that a wrong one uses nothing up.
func (s *Server) read(r *securityv1.IstioCertificateRequest) (Ask, *Request, error) {
	if n := proto.Size(r); n > s.config.Limits.Size {
		return Ask{}, nil, fmt.Errorf("%w: the call has %d bytes, at most %d are allowed", ErrRequest, n, s.config.Limits.Size)
	}
	fields := r.GetMetadata().GetFields()
	for _, key := range []string{"CertSigner", "ImpersonatedIdentity"} {
		if fields[key].GetStringValue() != "" {
			return Ask{}, nil, fmt.Errorf("%w: the metadata %s is not supported: a certificate is for who asks, signed by the mesh's own authority", ErrRequest, key)
		}
	}
	if _, err := s.config.Rules.validity(seconds(r.GetValidityDuration())); err != nil {
		return Ask{}, nil, err
	}
	request, err := ParseRequest([]byte(r.GetCsr()))
	if err != nil {
		return Ask{}, nil, err
	}
	return Ask{Key: request.KeyHash, Workload: fields["Workload"].GetStringValue(), Group: fields["Group"].GetStringValue(), Replace: fields["Replace"].GetBoolValue()}, request, nil
}

// seconds is a number of them as a duration, the longest one when it is too many.
func seconds(n int64) time.Duration {
	const most = math.MaxInt64 / int64(time.Second)
	return time.Duration(max(-most, min(most, n))) * time.Second
}
