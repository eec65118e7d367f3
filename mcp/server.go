package mcp

import (
	"cmp"
	"context"
	"errors"
	"io"
	"net"
	"strconv"
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"

	"github.com/ashore-mesh/ashore/internal/audit"
	"github.com/ashore-mesh/ashore/internal/pace"
	"github.com/ashore-mesh/ashore/internal/spiffe"
	"github.com/ashore-mesh/ashore/mcp/legacypb"
)

// ServerConfig is what a Server is made of; Catalog and Identify are needed.
type ServerConfig struct {
	// Catalog is what is told, and to whom.
	Catalog *Catalog
	// Identify says who is at the other end of a stream, and until when that counts; a zero time: for ever. It is asked
	// again by Recheck. Errors: what they show is not to be believed.
	Identify func(ctx context.Context) (who spiffe.ID, until time.Time, err error)
	// Streams bounds the streams that are served at a time. Default 64.
	Streams int
	// Audit records who reads and who may not; nil: nobody does.
	Audit func(audit.Event)
	// Log is told who reads; nil discards.
	Log hclog.Logger
}

// Server tells other control planes our objects by the older protocol, as ResourceSource. Over xDS, package xds does.
type Server struct {
	cfg     ServerConfig  // set once
	stopped chan struct{} // set once; closed when Run ends
	known   pace.Actors   // who is written down how often; safe for concurrent use

	mu      sync.Mutex
	streams map[*reader]bool // guarded by mu
}

// NewServer makes a server; Run has to run while it serves.
func NewServer(cfg ServerConfig) (*Server, error) {
	if cfg.Catalog == nil || cfg.Identify == nil {
		return nil, errors.New("mcp: a server needs a Catalog and Identify")
	}
	if cfg.Streams == 0 {
		cfg.Streams = 64
	}
	if cfg.Log == nil {
		cfg.Log = hclog.NewNullLogger()
	}
	return &Server{cfg: cfg, stopped: make(chan struct{}), streams: map[*reader]bool{}}, nil
}

// Run serves until ctx ends, then ends all streams.
func (s *Server) Run(ctx context.Context) error {
	<-ctx.Done()
	close(s.stopped)
	return nil
}

// Register adds the service to a gRPC server.
func (s *Server) Register(g grpc.ServiceRegistrar) {
	g.RegisterService(&grpc.ServiceDesc{ServiceName: legacypb.ResourceSource_ServiceDesc.ServiceName, HandlerType: (*any)(nil), Metadata: legacypb.ResourceSource_ServiceDesc.Metadata,
		Streams: []grpc.StreamDesc{{StreamName: "EstablishResourceStream", Handler: s.establish, ServerStreams: true, ClientStreams: true}}}, s)
}

// Recheck asks anew of every stream who is at its other end: to be called when something was revoked. It does not wait.
func (s *Server) Recheck() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for r := range s.streams {
		select {
		case r.recheck <- struct{}{}:
		default:
		}
	}
}

// reader is one stream. One goroutine, run, owns it and sends; another one reads.
type reader struct {
	*Server
	stream   grpc.ServerStream
	from     string
	who      spiffe.ID
	requests chan *legacypb.RequestResources // written and closed by read
	recheck  chan struct{}                   // cap 1; written by Recheck
	stuck    chan struct{}                   // cap 1; written when a send takes too long
	supply   supply                          // belongs to run
	node     string                          // belongs to run
}

// sendWait is how long an answer may wait for a sink to read.
const sendWait = 5 * time.Minute

// establish serves one stream.
func (s *Server) establish(_ any, stream grpc.ServerStream) error {
	r := &reader{Server: s, stream: stream, requests: make(chan *legacypb.RequestResources), recheck: make(chan struct{}, 1), stuck: make(chan struct{}, 1)}
	if p, ok := peer.FromContext(stream.Context()); ok {
		r.from = p.Addr.String()
	}
	until, err := r.identify()
	if err != nil {
		r.record(audit.Refused, status.Convert(err).Message())
		return err
	}
	r.record(audit.OK, "")
	if !s.enter(r) {
		return status.Errorf(codes.ResourceExhausted, "%d streams are served, no more", s.cfg.Streams)
	}
	defer s.leave(r)
	r.supply.find = s.cfg.Catalog.Set
	done := make(chan error, 1)
	go r.read()
	go func() { done <- r.run(until) }()
	select { // returning ends the stream, and so the others
	case err = <-done:
	case <-r.stuck:
		err = status.Errorf(codes.DeadlineExceeded, "an answer could not be sent within %s", sendWait)
	}
	s.cfg.Log.Info("a reader of configuration is gone", "peer", r.from, "identity", r.who, "reason", err)
	return err
}

// identify asks who is at the other end, and whether they may read.
func (r *reader) identify() (until time.Time, err error) {
	r.who, until, err = r.cfg.Identify(r.stream.Context())
	if err != nil {
		return until, status.Error(codes.Unauthenticated, ErrUnknownReader.Error())
	}
	return until, refuse(r.cfg.Catalog.May(r.who))
}

// record writes down who reads, or may not, as long as it is not too often.
func (r *reader) record(outcome, reason string) {
	host, _, err := net.SplitHostPort(r.from)
	if err != nil {
		host = r.from
	}
	who := cmp.Or(r.who.String(), host)
	record, silent := r.known.Take(who, time.Now())
	if !record {
		return
	}
	if outcome != audit.OK {
		r.cfg.Log.Warn("a reader of configuration was refused", "peer", r.from, "identity", r.who, "error", reason, "not logged before", silent)
	}
	if r.cfg.Audit == nil {
		return
	}
	e := audit.Event{Action: audit.ConfigRead, Actor: who, Target: "everything", Outcome: outcome, Reason: reason,
		Details: map[string]string{"peer": r.from, "protocol": ResourceSource}}
	if silent > 0 {
		e.Details["unwritten"] = strconv.Itoa(silent)
	}
	r.cfg.Audit(e)
}

// refuse is the answer to a reader for why it may not read; nil for nil.
func refuse(why error) error {
	switch {
	case why == nil:
		return nil
	case errors.Is(why, ErrUnknownReader):
		return status.Error(codes.Unauthenticated, why.Error())
	}
	return status.Error(codes.PermissionDenied, why.Error())
}

func (s *Server) enter(r *reader) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.streams) >= s.cfg.Streams {
		return false
	}
	s.streams[r] = true
	return true
}

func (s *Server) leave(r *reader) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.streams, r)
}

// read hands over requests until the stream ends.
func (r *reader) read() {
	defer close(r.requests)
	for {
		m := &legacypb.RequestResources{}
		if err := r.stream.RecvMsg(m); err != nil {
			if !errors.Is(err, io.EOF) {
				r.cfg.Log.Debug("a reader of configuration ended its stream", "peer", r.from, "error", err)
			}
			return
		}
		select {
		case r.requests <- m:
		case <-r.stream.Context().Done():
			return
		}
	}
}

// run owns the stream. Only one of these things happens at a time: a request, other objects, a new look at who it is, the end.
func (r *reader) run(until time.Time) error {
	wake, stop := r.cfg.Catalog.watch()
	defer stop()
	for {
		expired, end := alarm(until)
		select {
		case <-r.stream.Context().Done():
			end()
			return status.FromContextError(r.stream.Context().Err()).Err()
		case <-r.stopped:
			end()
			return status.Error(codes.Unavailable, "shutting down: try another replica")
		case <-expired:
			end()
			return status.Error(codes.Unauthenticated, "the client certificate has expired: connect with a newer one")
		case <-r.recheck:
			var err error
			if until, err = r.identify(); err != nil {
				end()
				return err
			}
		case m, ok := <-r.requests:
			if !ok {
				end()
				return nil
			}
			if err := r.take(m); err != nil {
				end()
				return err
			}
		case <-wake:
		}
		end()
		if err := r.deliver(); err != nil {
			return err
		}
	}
}

// alarm rings at a time; never when that is zero.
func alarm(at time.Time) (rings <-chan time.Time, stop func()) {
	if at.IsZero() {
		return nil, func() {}
	}
	t := time.NewTimer(time.Until(at))
	return t.C, func() { t.Stop() }
}

// take takes in one request.
func (r *reader) take(m *legacypb.RequestResources) error {
	if r.node == "" {
		r.node = clip(m.GetSinkNode().GetId())
		r.cfg.Log.Info("a reader of configuration is here", "peer", r.from, "identity", r.who, "node", r.node)
	}
	what, err := r.supply.receive(m)
	if err != nil {
		return status.Error(codes.InvalidArgument, err.Error())
	}
	switch what {
	case refused:
		r.cfg.Log.Warn("a reader refused configuration", "peer", r.from, "identity", r.who, "collection", clip(m.Collection), "error", clip(m.ErrorDetail.GetMessage()))
	case stale:
		r.cfg.Log.Debug("a stale answer was left out", "peer", r.from, "collection", clip(m.Collection), "nonce", clip(m.ResponseNonce))
	}
	return nil
}

// deliver sends what there is to send.
func (r *reader) deliver() error {
	for {
		m := r.supply.next()
		if m == nil {
			return nil
		}
		late := time.AfterFunc(sendWait, func() {
			select {
			case r.stuck <- struct{}{}:
			default:
			}
		})
		err := r.stream.SendMsg(m)
		late.Stop()
		if err != nil {
			return err
		}
	}
}
