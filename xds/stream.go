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
	proxy  *proxy            // set by run at the first request, before the server knows the stream

	wake     chan struct{} // cap 1; written by Publish, read by run
	cut      chan error    // cap 1; written by expel, read by serve
	expelled atomic.Bool   // written by expel: the registration is removed at once
	reads    atomic.Bool   // written by run: it reads configuration, and that was audited
	requests chan *frame   // written and closed by read, read by run
	readErr  error         // written by read before it closes requests

	// The following fields are used by run alone.
	cost     int      // of its subscriptions, as its quota holds it
	group    string   // WorkloadGroup that it may register as; empty: none
	labelled labelled // of the latest group
	// secretAccess receives whether the proxy may have restricted secrets, once that is known. Nil: it
	// is known, or nobody asks.
	secretAccess <-chan bool
	snap         *snapshot
	scope        *push.Scope
	timer        <-chan time.Time // for the nearest end of a wait, nil when there is none
	converging   time.Time        // since of the oldest context that is not acknowledged yet

	// mu guards the following fields, which run alone changes: it holds mu while it does, and never
	// while it sends.
	mu    sync.Mutex
	order ads.Order
	// registered is the registration of its workload; nil: none.
	registered *registry.RegistrationKey
	shown      push.Node // the proxy as it is selected, see node
	bundle     string    // ID of the bundle that the client acknowledged last
}

// serve serves one stream until it ends.
func (s *Server) serve(g grpc.ServerStream, sotw bool) error {
	if s.current.Load() == nil { // not logged: all proxies retry about every second
		s.metrics.refused.WithLabelValues("not ready").Inc()
		return errNotReady
	}
	checks := s.rechecks.Load()
	from := addressOf(g.Context())
	who, err := s.identify(g.Context())
	if err != nil {
		s.metrics.refused.WithLabelValues("not authenticated").Inc()
		s.peerLog.Log(hclog.Warn, hostOf(from).String(), "stream refused: its peer is not authenticated", "peer", from,
			"error", err)
		return publicError(err)
	}
	q, err := s.quotaOf(who, from)
	if err != nil {
		s.metrics.refused.WithLabelValues("too many streams").Inc()
		return err
	}
	defer q.leave()
	st := &stream{
		server: s, grpc: g, sotw: sotw, who: who, checks: checks, quota: q,
		peer: from, since: time.Now(), serial: s.serial.Add(1),
		cut: make(chan error, 1), wake: make(chan struct{}, 1), requests: make(chan *frame),
		order: ads.Order{RouteWait: s.cfg.RouteWait, RemovalWait: s.cfg.RemovalWait},
	}
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

// await waits until run is done, or there is a reason to end the stream. Returning ends it.
func (st *stream) await(done <-chan error) error {
	s, who := st.server, st.who
	var expired <-chan time.Time
	if !who.Expires.IsZero() {
		expired = time.After(time.Until(who.Expires))
	}
	select {
	case err := <-done:
		return err
	case <-expired:
		s.metrics.refused.WithLabelValues("certificate expired").Inc()
		st.logLine(hclog.Warn, "stream ended: the proxy's certificate or token has expired", "peer", st.peer,
			"identity", who.Identity, "serial", who.Serial, "expired", who.Expires)
		return status.Error(codes.Unauthenticated,
			"the client certificate or token has expired: connect with a newer one")
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

// addressOf is the address of a stream's peer; empty if unknown.
func addressOf(ctx context.Context) string {
	if p, ok := peer.FromContext(ctx); ok {
		return p.Addr.String()
	}
	return ""
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
			if err := st.take(ctx, f); err != nil {
				return err
			}
		case may := <-st.secretAccess:
			st.secretAccess = nil
			st.proxy.ReadsSecrets = may
			st.snap, st.labelled = nil, labelled{} // has refresh read the node again
		case <-st.wake:
		case <-st.timer:
		}
		if st.proxy == nil {
			continue // woken before its first request
		}
		if err := st.deliver(); err != nil {
			return err
		}
	}
}

// end removes the stream and ends its registration.
func (st *stream) end(err error) {
	if st.proxy == nil {
		if err != nil {
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
