package mcp

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/ashore-mesh/ashore/internal/audit"
	"github.com/ashore-mesh/ashore/internal/ratelimit"
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
	// Streams bounds the streams that are served at a time; one reader has a quarter of them, one at least. Default 64.
	Streams int
	// Audit records who reads and who may not; nil: nobody does.
	Audit func(audit.Event)
	// Log is told who reads; nil discards.
	Log hclog.Logger
}

// Server tells other control planes our objects by the older protocol, as ResourceSource. Over xDS, package xds does.
type Server struct {
	cfg     ServerConfig      // set once
	stopped chan struct{}     // set once; closed when Run ends
	known   ratelimit.Limiter // who is written down how often; safe for concurrent use

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

// enter counts a stream, and has it look once more who it is: something may have been revoked since it did. Errors: too many
// are served, of all or of this one.
func (s *Server) enter(r *reader) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	own, most := 0, max(1, s.cfg.Streams/4)
	for other := range s.streams {
		if other.party() == r.party() {
			own++
		}
	}
	switch {
	case len(s.streams) >= s.cfg.Streams:
		return status.Errorf(codes.ResourceExhausted, "%d streams are served, no more", s.cfg.Streams)
	case own >= most:
		return status.Errorf(codes.ResourceExhausted, "%d streams of %s are served, no more", own, r.party())
	}
	s.streams[r] = true
	r.recheck <- struct{}{}
	return nil
}

func (s *Server) leave(r *reader) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.streams, r)
}
