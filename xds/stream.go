package xds

import (
	"context"
	"errors"
	"io"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/go-hclog"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"

	"github.com/ashore-mesh/ashore/internal/audit"
	"github.com/ashore-mesh/ashore/internal/task"
	"github.com/ashore-mesh/ashore/push"
	"github.com/ashore-mesh/ashore/registry"
	"github.com/ashore-mesh/ashore/xds/ads"
)

// stream is one client's stream. One goroutine, run, owns it and sends; another one reads.
type stream struct {
	server *Server           // immutable
	grpc   grpc.ServerStream // immutable
	sotw   bool              // immutable: state of the world
	peer   string            // immutable: the address
	since  time.Time         // immutable: when it connected
	serial uint64            // immutable
	who    Peer              // immutable
	checks uint64            // immutable: how often Recheck had been called before who was verified
	quota  *quota            // immutable: its part in the quota of its workload; nil: no limit
	early  bool              // immutable: there was no context when it connected; it gets configuration only
	proxy  *proxy            // set by run at the first request, before the server knows the stream

	wake     chan struct{} // cap 1; written by Publish, read by run
	cut      chan error    // cap 1; written by expel, read by serve
	expelled atomic.Bool   // written by expel: the registration is removed at once
	reads    atomic.Bool   // written by run: it reads configuration, and that was audited
	requests chan *frame   // written and closed by read, read by run
	readErr  error         // written by read before it closes requests

	// The following fields are used by run alone.
	cost       int      // of its subscriptions, as its quota holds it
	group      string   // WorkloadGroup that it may register as; empty: none
	labelled   labelled // of the latest group
	snap       *snapshot
	news       uint64 // Server.news when it last looked at configuration
	scope      *push.Scope
	timer      *time.Timer // for the nearest end of a wait, nil when there is none
	converging time.Time   // since of the oldest context that is not acknowledged yet

	// mu guards the following fields, which run alone changes: it holds mu while it does, and never
	// while it sends.
	mu    sync.Mutex
	order ads.Order
	types []*typeState // by the order's rank
	// registered is the registration of its workload; nil: none.
	registered *registry.RegistrationKey
	shown      push.Node // the proxy as it is selected, see node; none before the first refresh
	bundle     string    // ID of the bundle that the client acknowledged last
}

// typeState is one type of a stream.
type typeState struct {
	*ads.Subscription
	current bool // To is what the latest context says
	objects bool // it is of configuration objects, and not of what proxies have
}

// find returns the state of a type, nil if the client never asked for it.
func (st *stream) find(typeURL string) *typeState {
	for _, t := range st.types {
		if t.Kind().TypeURL == typeURL {
			return t
		}
	}
	return nil
}

// serve serves one stream until it ends.
func (s *Server) serve(g grpc.ServerStream, sotw bool) error {
	early := s.current.Load() == nil
	if early && (s.cfg.Objects == nil || !s.cfg.Objects.Ready()) {
		return s.notReady()
	}
	checks := s.rechecks.Load()
	who, err := s.identify(g.Context(), time.Now())
	if err != nil {
		s.metrics.refused.WithLabelValues("not authenticated").Inc()
		from := addressOf(g.Context())
		s.peerLog.Log(hclog.Warn, hostOf(from).String(), "stream refused: its peer is not authenticated", "peer", from,
			"error", err)
		return errUnauthenticated
	}
	q, err := s.quotaOf(who, addressOf(g.Context()))
	if err != nil {
		s.metrics.refused.WithLabelValues("too many streams").Inc()
		return err
	}
	defer q.leave()
	st := s.newStream(g, sotw, who, checks)
	st.quota = q
	st.early = early
	go st.read()
	done := make(chan error, 1)
	go func() {
		err := st.run(g.Context())
		st.end(err)
		done <- err
	}()
	return st.await(done)
}

// errNotReady ends a stream that comes before the first context.
var errNotReady = status.Error(codes.Unavailable,
	"not ready: the configuration is not complete yet, try another replica")

// notReady counts a stream that comes before the first context. It is not logged: all proxies retry
// about every second.
func (s *Server) notReady() error {
	s.metrics.refused.WithLabelValues("not ready").Inc()
	return errNotReady
}

// newStream returns a stream of who, verified when Recheck had been called checks times.
func (s *Server) newStream(g grpc.ServerStream, sotw bool, who Peer, checks uint64) *stream {
	st := &stream{
		server:   s,
		who:      who,
		checks:   checks,
		peer:     addressOf(g.Context()),
		cut:      make(chan error, 1),
		grpc:     g,
		sotw:     sotw,
		since:    time.Now(),
		serial:   s.serial.Add(1),
		wake:     make(chan struct{}, 1),
		requests: make(chan *frame),
	}
	st.order = ads.Order{RouteWait: s.cfg.RouteWait, RemovalWait: s.cfg.RemovalWait}
	return st
}

// await waits until run is done, or there is a reason to end the stream. Returning ends it.
func (st *stream) await(done <-chan error) error {
	s, who := st.server, st.who
	expired, stop := alarm(who.Expires)
	defer stop()
	select {
	case err := <-done:
		return err
	case <-expired:
		s.metrics.refused.WithLabelValues("certificate expired").Inc()
		st.logLine(hclog.Warn, "stream ended: the proxy's certificate has expired", "peer", st.peer,
			"identity", who.Identity, "serial", who.Serial, "expired", who.Expires)
		return status.Error(codes.Unauthenticated, "the client certificate has expired: connect with a newer one")
	case why := <-st.cut:
		s.metrics.refused.WithLabelValues("not authenticated any more").Inc()
		if st.reads.Load() {
			st.recordRead(audit.Refused, why.Error())
		}
		st.logLine(hclog.Warn, "stream ended: its peer is no longer authenticated", "peer", st.peer,
			"identity", who.Identity, "serial", who.Serial, "error", why)
		if out, ok := errors.AsType[*NotJoinedError](why); ok && out.Public != "" {
			return status.Error(codes.PermissionDenied, out.Public)
		}
		return errUnauthenticated
	}
}

// awake makes run look for changes. It does not wait.
func (st *stream) awake() {
	task.Poke(st.wake)
}

// addressOf is the address of a stream's peer; empty if unknown.
func addressOf(ctx context.Context) string {
	if p, ok := peer.FromContext(ctx); ok {
		return p.Addr.String()
	}
	return ""
}

// alarm returns a channel that receives at a time; never if that is zero.
func alarm(at time.Time) (rings <-chan time.Time, stop func()) {
	if at.IsZero() {
		return nil, func() {}
	}
	t := time.NewTimer(time.Until(at))
	return t.C, func() { t.Stop() }
}

// read passes requests to run until the stream ends.
func (st *stream) read() {
	defer close(st.requests)
	for {
		f := &frame{}
		if err := st.grpc.RecvMsg(f); err != nil {
			st.readErr = err
			return
		}
		if err := st.quota.hold(f.in.Len()); err != nil {
			f.in.Free()
			st.readErr = err
			return
		}
		select {
		case st.requests <- f:
		case <-st.grpc.Context().Done():
			f.in.Free()
			return
		}
	}
}

// run owns the stream. It handles one event at a time: a request, a new context, the end of a wait.
func (st *stream) run(ctx context.Context) error {
	for {
		var expired <-chan time.Time
		if st.timer != nil {
			expired = st.timer.C
		}
		first := false
		select {
		case <-ctx.Done():
			return status.FromContextError(ctx.Err()).Err()
		case <-st.server.stopped:
			return errStopped
		case f, ok := <-st.requests:
			if !ok {
				if errors.Is(st.readErr, io.EOF) {
					return nil
				}
				return st.readErr
			}
			var err error
			if first, err = st.take(ctx, f); err != nil {
				return err
			}
		case <-st.wake:
		case <-expired:
		}
		if st.proxy == nil {
			continue // woken before its first request
		}
		if err := st.deliver(ctx, first); err != nil {
			return err
		}
	}
}

// end removes the stream and ends its registration.
func (st *stream) end(err error) {
	st.arm(0)
	if st.proxy == nil {
		if err != nil && !errors.Is(err, errNotReady) {
			st.logLine(hclog.Info, "stream refused", "peer", st.peer, "error", err)
		}
		return
	}
	s := st.server
	st.unregister()
	s.remove(st)
	st.logLine(hclog.Info, "proxy disconnected", "proxy", st.proxy.ID, "peer", st.peer,
		"after", time.Since(st.since).Round(time.Millisecond), "reason", err)
}
