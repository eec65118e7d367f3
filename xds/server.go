package xds

import (
	"cmp"
	"context"
	"crypto/rand"
	"crypto/x509"
	"errors"
	"iter"
	"maps"
	"math"
	"net/netip"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"

	"github.com/ashore-mesh/ashore/config"
	"github.com/ashore-mesh/ashore/internal/audit"
	"github.com/ashore-mesh/ashore/internal/connlimit"
	"github.com/ashore-mesh/ashore/internal/ratelimit"
	"github.com/ashore-mesh/ashore/internal/secret"
	"github.com/ashore-mesh/ashore/internal/spiffe"
	"github.com/ashore-mesh/ashore/internal/task"
	"github.com/ashore-mesh/ashore/push"
	"github.com/ashore-mesh/ashore/registry"
	"github.com/ashore-mesh/ashore/xds/ads"
	"github.com/ashore-mesh/ashore/xds/resource"
)

// Context is the mesh at one moment; *push.Context implements it. Equal facets give one scope, and a
// scope keeps its pointer from context to context while it does not change.
type Context interface {
	Classify(n push.Node) push.Facets
	Scope(f push.Facets) *push.Scope
	// Object returns the configuration object of that key; nil when there is none.
	Object(key config.Key) *config.Object
	// Secrets returns all secrets that credentialName names; nil if there are none.
	Secrets() *secret.Set
	// WorkloadEntriesAt returns the WorkloadEntry objects with that IP address, in all namespaces.
	WorkloadEntriesAt(address netip.Addr) iter.Seq[*config.Object]
}

// Generator makes the resources of a scope. It caches them: equal scopes give equal sets.
type Generator interface {
	// Set returns the resources of one type for a proxy of that scope; none of an unknown type.
	Set(typeURL string, sc *push.Scope) resource.Set
}

// Objects are the configuration objects that other control planes read (MCP over xDS); *mcp.Catalog
// implements it. PublishObjects must be called when they change.
type Objects interface {
	// Knows reports whether a type is one of configuration. It is cheap, and called for each type of
	// each stream.
	Knows(typeURL string) bool
	// Set returns the objects of a type; false: it is no type of configuration. It may be expensive
	// after a change, and is called only for clients that may read.
	Set(typeURL string) (resource.Set, bool)
	// May returns an error if a client may not read the objects.
	May(who spiffe.ID) error
}

// Config configures a Server. Generator and Log are required; the zero values of the rest are the
// defaults.
type Config struct {
	Generator Generator
	Log       hclog.Logger
	// Registerer registers the metrics; may be nil.
	Registerer prometheus.Registerer
	// Verify returns the identity of a chain of certificates, the leaf first. It returns an error if
	// the chain is expired at now, revoked, or not of this mesh. Nil: connections with TLS are
	// refused. On a connection without TLS nothing is verified: its nodes may claim anything and have
	// no identity.
	Verify func(chain []*x509.Certificate, now time.Time) (spiffe.ID, error)
	// Token returns the identity that the bearer token of a call proves, and when the token expires. It
	// is called for peers without a client certificate. The client gets the gRPC status in its error, or
	// else Unauthenticated. Nil: every peer needs a certificate.
	Token func(context.Context) (spiffe.ID, time.Time, error)
	// Workload returns the workload, "namespace/name", of a verified certificate; empty if the
	// certificate names none. Nil: none does.
	Workload func(leaf *x509.Certificate) string
	// Revoked returns an error if an identity is revoked, or the certificate with this SHA-256 of its
	// DER in hexadecimal digits. It is cheap: Recheck calls it for all streams, before Run verifies
	// them again. Nil: Verify does all.
	Revoked func(id spiffe.ID, fingerprint string) error
	// Runtime registers workloads and their health. Nil: requests to register are ignored.
	Runtime registry.Runtime
	// Joined returns the WorkloadGroup, "namespace/name", that the workload of a certificate joined;
	// empty if none. It is called only for workloads that register. Errors: *NotJoinedError, or the
	// reason why it is not known now. Nil: every verified certificate may register.
	Joined func(ctx context.Context, leaf *x509.Certificate) (group string, err error)
	// MayReadSecrets reports whether a gateway of an identity may have the restricted secrets of its
	// namespace. It is called when a stream begins, which waits for the answer. Errors: there is no
	// answer; it is called again after AccessRetry. Nil: nobody may.
	MayReadSecrets func(context.Context, spiffe.ID) (bool, error)
	// AccessRetry is the time between two calls of MayReadSecrets for a stream. Zero means 10s.
	AccessRetry time.Duration
	// RegisterAnybody lets workloads without an identity register: for development.
	RegisterAnybody bool
	// Objects can be read by other control planes; nil: nothing can be read.
	Objects Objects
	// MayDebug reports whether an identity may ask istioctl's questions, such as its proxy-status.
	// Nil: nobody may.
	MayDebug func(spiffe.ID) bool
	// Replica is the name of this control plane in answers to istioctl; may be empty.
	Replica string
	// Audit records refused registrations and who reads; may be nil.
	Audit func(audit.Event)
	// WorkloadStreams is how many streams one workload may have, over all of its certificates and
	// connections. Zero means 16.
	WorkloadStreams int
	// WorkloadBytes is about how much memory the requests and subscriptions of one workload may take,
	// on all of its streams together. A proxy that subscribes to 10,000 names takes about 1.5 MB.
	// Zero means 12 MiB.
	WorkloadBytes int
	// Admissions is how many streams may generate a type for the first time at once; the others wait.
	// Zero means two for each processor.
	Admissions int
	// RouteWait is how long a listener, route or filter waits until the endpoints of a new or changed
	// cluster that it names are acknowledged. Zero means 2s.
	RouteWait time.Duration
	// RemovalWait is how long a removed cluster or route stays, so that what uses it moves on first.
	// Zero means 10s.
	RemovalWait time.Duration
}

// Server serves aggregated discovery, incremental and state of the world. Safe for concurrent use.
type Server struct {
	cfg     Config        // immutable
	log     hclog.Logger  // immutable
	metrics *metrics      // immutable
	cache   *ads.Cache    // immutable
	nodes   nodes         // safe for concurrent use
	admit   chan struct{} // immutable; has a token for each stream that generates a type for the first time
	stopped chan struct{} // immutable; closed when Run ends
	name    string        // immutable; unique to this process
	recheck chan struct{} // cap 1; written by Recheck, read by Run
	serial  atomic.Uint64 // of streams
	// rechecks counts calls of Recheck: a stream that was verified before the last one is verified
	// again when it is added.
	rechecks atomic.Uint64
	current  atomic.Pointer[snapshot]
	peerLog  *ratelimit.Logger // immutable; for lines that peers can cause at will

	audits ratelimit.Limiter // safe for concurrent use; audit events, by action and peer

	workloads *connlimit.Limiter[*memory] // immutable; the streams of each workload

	mu      sync.Mutex
	streams map[*stream]struct{} // guarded by mu
}

// snapshot is a published context.
type snapshot struct {
	context Context
	since   time.Time
}

// New returns a server that refuses streams until the first Publish. Errors: a missing field of cfg.
// It panics if its metrics are registered already.
func New(cfg Config) (*Server, error) {
	if cfg.Generator == nil || cfg.Log == nil {
		return nil, errors.New("xds: a server needs a Generator and a Log")
	}
	cfg.WorkloadStreams = cmp.Or(cfg.WorkloadStreams, 16)
	cfg.WorkloadBytes = cmp.Or(cfg.WorkloadBytes, 12<<20)
	cfg.Admissions = cmp.Or(cfg.Admissions, 2*runtime.GOMAXPROCS(0))
	cfg.AccessRetry = cmp.Or(cfg.AccessRetry, 10*time.Second)
	cfg.RouteWait = cmp.Or(cfg.RouteWait, 2*time.Second)
	cfg.RemovalWait = cmp.Or(cfg.RemovalWait, 10*time.Second)
	log := cfg.Log.Named("xds")
	s := &Server{
		cfg:     cfg,
		log:     log,
		peerLog: ratelimit.NewLogger(log),
		cache:   ads.NewCache(),
		admit:   make(chan struct{}, cfg.Admissions),
		stopped: make(chan struct{}),
		name:    rand.Text(),
		recheck: make(chan struct{}, 1),
		streams: map[*stream]struct{}{},
	}
	s.metrics = newMetrics(s)
	s.workloads = connlimit.NewLimiter(math.MaxInt, cfg.WorkloadStreams, func() *memory {
		return &memory{most: cfg.WorkloadBytes, refused: s.metrics.refused.WithLabelValues("too much memory")}
	})
	return s, nil
}

// all returns the streams.
func (s *Server) all() []*stream {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Collect(maps.Keys(s.streams))
}

// Run serves until ctx ends, then ends all streams, so that their clients try another replica.
func (s *Server) Run(ctx context.Context) error {
	for {
		select {
		case <-ctx.Done():
			close(s.stopped)
			return nil
		case <-s.recheck:
			s.recheckAll()
		}
	}
}

// Publish makes c the latest context. since is when its oldest change was seen, for the metrics. It
// does not wait.
func (s *Server) Publish(c Context, since time.Time) {
	s.current.Store(&snapshot{context: c, since: since})
	for _, st := range s.all() {
		task.Poke(st.wake)
	}
}

// PublishObjects wakes all streams that read configuration. It does not wait.
func (s *Server) PublishObjects() {
	for _, st := range s.all() {
		if st.reads.Load() {
			task.Poke(st.wake)
		}
	}
}

// Register adds the discovery service to a gRPC server, which has to be made with ServerOptions.
func (s *Server) Register(g *grpc.Server) {
	g.RegisterService(&grpc.ServiceDesc{
		ServiceName: "envoy.service.discovery.v3.AggregatedDiscoveryService",
		HandlerType: (*any)(nil),
		Streams: []grpc.StreamDesc{
			{StreamName: "DeltaAggregatedResources", Handler: s.delta, ServerStreams: true, ClientStreams: true},
			{StreamName: "StreamAggregatedResources", Handler: s.states, ServerStreams: true, ClientStreams: true},
		},
		Metadata: "envoy/service/discovery/v3/ads.proto",
	}, s)
}

func (s *Server) delta(_ any, st grpc.ServerStream) error  { return s.serve(st, false) }
func (s *Server) states(_ any, st grpc.ServerStream) error { return s.serve(st, true) }

func (s *Server) add(st *stream) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.streams[st] = struct{}{}
}

func (s *Server) remove(st *stream) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.streams, st)
}
