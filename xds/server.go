package xds

import (
	"context"
	"crypto/rand"
	"crypto/x509"
	"errors"
	"fmt"
	"iter"
	"maps"
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
	"github.com/ashore-mesh/ashore/internal/ratelimit"
	"github.com/ashore-mesh/ashore/internal/spiffe"
	"github.com/ashore-mesh/ashore/push"
	"github.com/ashore-mesh/ashore/registry"
	"github.com/ashore-mesh/ashore/xds/ads"
	"github.com/ashore-mesh/ashore/xds/resource"
)

// Context is the mesh at one moment, as *push.Context is. Equal facets give one scope, and a scope
// keeps its pointer from context to context while it does not change.
type Context interface {
	Classify(n push.Node) push.Facets
	Scope(f push.Facets) *push.Scope
	// Object returns the configuration object of that key; nil when there is none.
	Object(key config.Key) *config.Object
	// WorkloadEntriesAt returns the WorkloadEntry objects with that IP address, in all namespaces.
	WorkloadEntriesAt(address netip.Addr) iter.Seq[*config.Object]
}

// Generator makes the resources of a scope. Its results are remembered: equal scopes give equal
// sets.
type Generator interface {
	// Set returns what a proxy of that scope has of one type; nothing of a type that it does not
	// know.
	Set(typeURL string, sc *push.Scope) resource.Set
	// Capabilities says what a client can take that was built with these extensions.
	Capabilities(extensions []string) push.Capabilities
}

// Objects are the configuration objects that other control planes are told, over streams like those
// of proxies (MCP over xDS); *mcp.Catalog is. PublishObjects has to follow when they are others.
type Objects interface {
	// Ready says that there is something to tell: before that nobody is told.
	Ready() bool
	// Knows says that a type is one of configuration. It costs next to nothing, and is asked of
	// everybody.
	Knows(typeURL string) bool
	// Set returns what there is of a type; false: it is no type of configuration. It may cost much,
	// and is asked for those who may be told.
	Set(typeURL string) (resource.Set, bool)
	// May says why somebody may not be told; nil: they may.
	May(who spiffe.ID) error
}

// Config is what a Server is made of. Generator and Log are needed; zero values of the rest are the
// defaults.
type Config struct {
	Generator Generator
	Log       hclog.Logger
	// Registerer is where the metrics go; nil: nowhere.
	Registerer prometheus.Registerer
	// Verify says who presented a chain of certificates, the leaf first. Errors: why that is not to
	// be believed at now: it is out of date, revoked, or not of this mesh. Nil: connections with
	// TLS are refused. On a connection without TLS nothing is verified: it may speak for every
	// node, and has no identity.
	Verify func(chain []*x509.Certificate, now time.Time) (spiffe.ID, error)
	// Workload says which workload, "namespace/name", a certificate names that Verify believes;
	// empty: none. Nil: none does.
	Workload func(leaf *x509.Certificate) string
	// Revoked says why an identity, or the certificate with this SHA-256 of its DER in hexadecimal
	// digits, counts no more. It costs next to nothing: Recheck asks it of all streams before it
	// verifies any anew, and of workloads that are still registered although their proxies have
	// gone. Nil: Verify says it all.
	Revoked func(id spiffe.ID, fingerprint string) error
	// Runtime takes in the workloads that ask to be registered, and their health. Nil: what they
	// ask for is ignored.
	Runtime registry.Runtime
	// Joined says which WorkloadGroup, "namespace/name", the workload of a certificate joined;
	// empty when none. Asked of those that register, and of nobody else. Errors: *NotJoinedError,
	// or why it cannot be told now. Nil: every certificate that Verify believes registers.
	Joined func(ctx context.Context, leaf *x509.Certificate) (group string, err error)
	// RegisterAnybody lets workloads register that have not proven who they are: for development.
	RegisterAnybody bool
	// Objects are told to other control planes; nil: nobody is told.
	Objects Objects
	// Audit records refused registrations; nil: nobody does.
	Audit func(audit.Event)
	// Limits bound what a request may hold.
	Limits ads.Limits
	// MaxTypes bounds the types that one stream may subscribe to. Zero means 64: all names that the
	// kinds of configuration ever had are fewer.
	MaxTypes int
	// WorkloadStreams bounds the streams of one workload, over all of its certificates and
	// connections. Zero means 16.
	WorkloadStreams int
	// WorkloadBytes bounds about how much memory the requests and subscriptions of one workload
	// take, on all of its streams together. A proxy that subscribes to 10,000 names of usual length
	// takes 1.5 MB. Zero means 12 MiB.
	WorkloadBytes int
	// Admissions is how many streams may have their first answers made at one time; the others wait
	// their turn. Zero means two for each processor.
	Admissions int
	// RouteWait is how long a route, a listener or a filter that asks waits for the endpoints of a
	// cluster that it newly names to be acknowledged. Zero means 2s.
	RouteWait time.Duration
	// NodeWait is how long a stream may last without a request that carries a node. Zero means 30s.
	NodeWait time.Duration
	// SendWait is how long a response may wait for a client to read. Zero means 5m.
	SendWait time.Duration
	// RemovalWait is how long a removed cluster is kept for listeners, routes and filters that have
	// not moved on, and for what a filter has asked of it. Zero means 10s.
	RemovalWait time.Duration
}

// Server serves aggregated discovery, incremental and state of the world. Safe for concurrent use.
type Server struct {
	cfg     Config        // set once
	log     hclog.Logger  // set once
	metrics *metrics      // set once
	kinds   kinds         // set once
	cache   *ads.Cache    // set once
	nodes   *nodes        // set once
	quotas  *quotas       // set once
	admit   chan struct{} // set once; holds a token for each stream whose first answers are being made
	stopped chan struct{} // set once; closed when Run ends
	name    string        // set once; of this process, different from all others
	recheck chan struct{} // cap 1; written by Recheck, read by Run
	serial  atomic.Uint64 // of streams
	// rechecks counts calls of Recheck: a stream that was verified before the last one is verified
	// again when it is taken in.
	rechecks atomic.Uint64
	current  atomic.Pointer[snapshot]
	news     atomic.Uint64     // counts calls of PublishObjects
	members  members           // safe for concurrent use
	gone     reconnects        // safe for concurrent use
	peerLog  *ratelimit.Logger // set once; the lines that peers can cause at will

	newcomers    ratelimit.Limiter // safe for concurrent use; new registrations, by workload
	unregistered ratelimit.Limiter // safe for concurrent use; audit events of refused registrations, by peer
	readers      ratelimit.Limiter // safe for concurrent use; audit events of readers of configuration, by peer

	refusals refusals // safe for concurrent use

	mu      sync.Mutex
	streams map[*stream]struct{} // guarded by mu
	clients map[string][]*stream // guarded by mu: the same by stream.client
}

// snapshot is a published context.
type snapshot struct {
	context Context
	since   time.Time
}

// New makes a server that refuses streams until the first Publish. Errors: what is missing in cfg,
// or metrics that are registered already.
func New(cfg Config) (*Server, error) {
	if cfg.Generator == nil || cfg.Log == nil {
		return nil, errors.New("xds: a server needs a Generator and a Log")
	}
	if cfg.MaxTypes == 0 {
		cfg.MaxTypes = 64
	}
	if cfg.WorkloadStreams == 0 {
		cfg.WorkloadStreams = 16
	}
	if cfg.WorkloadBytes == 0 {
		cfg.WorkloadBytes = 12 << 20
	}
	if cfg.Admissions == 0 {
		cfg.Admissions = 2 * runtime.GOMAXPROCS(0)
	}
	if cfg.RouteWait == 0 {
		cfg.RouteWait = 2 * time.Second
	}
	if cfg.NodeWait == 0 {
		cfg.NodeWait = 30 * time.Second
	}
	if cfg.SendWait == 0 {
		cfg.SendWait = 5 * time.Minute
	}
	if cfg.RemovalWait == 0 {
		cfg.RemovalWait = 10 * time.Second
	}
	m, err := newMetrics(cfg.Registerer, cfg.Runtime)
	if err != nil {
		return nil, fmt.Errorf("xds: register metrics: %w", err)
	}
	log := cfg.Log.Named("xds")
	return &Server{
		cfg:     cfg,
		log:     log,
		peerLog: ratelimit.NewLogger(log),
		metrics: m,
		kinds:   newKinds(),
		cache:   ads.NewCache(),
		nodes:   newNodes(cfg.Generator.Capabilities),
		quotas: &quotas{streams: cfg.WorkloadStreams, bytes: cfg.WorkloadBytes,
			refused: m.refused.WithLabelValues("too much memory"), held: map[string]*usage{}},
		admit:   make(chan struct{}, cfg.Admissions),
		stopped: make(chan struct{}),
		name:    rand.Text(),
		recheck: make(chan struct{}, 1),
		streams: map[*stream]struct{}{},
		clients: map[string][]*stream{},
	}, nil
}

// Run serves until ctx ends, then ends all streams, so that their clients try another replica.
func (s *Server) Run(ctx context.Context) error {
	expire := time.NewTicker(reconnectTime / 5)
	defer expire.Stop()
	for {
		select {
		case <-ctx.Done():
			close(s.stopped)
			return nil
		case now := <-expire.C:
			s.gone.expire(now)
		case <-s.recheck:
			s.recheckAll()
		}
	}
}

// Publish makes c what every proxy is told. since is when the oldest change in it was seen, for the
// metrics. Publish does not wait for anybody.
func (s *Server) Publish(c Context, since time.Time) {
	s.current.Store(&snapshot{context: c, since: since})
	s.mu.Lock()
	defer s.mu.Unlock()
	for st := range s.streams {
		st.awake()
	}
}

// PublishObjects has everybody who reads configuration look for what there is now. It does not wait
// for anybody.
func (s *Server) PublishObjects() {
	s.news.Add(1)
	s.mu.Lock()
	defer s.mu.Unlock()
	for st := range s.streams {
		if st.reads.Load() {
			st.awake()
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

// maxClientStreams is how many streams of one client are served at a time: a proxy has one, and for
// a while two when it connects anew.
const maxClientStreams = 16

// add adds a stream. It returns what its client rejected on earlier streams; not ok when the client
// has too many.
func (s *Server) add(st *stream) (rejected rejections, ok bool) {
	client := st.client()
	s.mu.Lock()
	others := s.clients[client]
	if len(others) >= maxClientStreams {
		s.mu.Unlock()
		return nil, false
	}
	s.clients[client] = append(slices.Clip(others), st)
	s.streams[st] = struct{}{}
	s.mu.Unlock()
	rejected = rejections{}
	maps.Copy(rejected, s.gone.take(st.quota.workload(), client))
	for _, o := range others { // the server may notice later that they have ended
		maps.Copy(rejected, o.rejected())
	}
	return rejected, true
}

// remove removes a stream and remembers what its client rejected.
func (s *Server) remove(st *stream) {
	client, rejected := st.client(), st.resume
	maps.Copy(rejected, st.rejected())
	s.gone.put(st.quota.workload(), client, rejected, time.Now())
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.streams, st)
	left := slices.DeleteFunc(slices.Clone(s.clients[client]), func(o *stream) bool { return o == st })
	if len(left) == 0 {
		delete(s.clients, client)
		return
	}
	s.clients[client] = left
}
