package xds

import (
	"context"
	"errors"
	"io"
	"strconv"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"

	"github.com/ashore-mesh/ashore/push"
	"github.com/ashore-mesh/ashore/xds/ads"
	"github.com/ashore-mesh/ashore/xds/resource"
)

// stream is one proxy's stream. One goroutine, run, owns it and sends; another one reads.
type stream struct {
	server *Server           // set once, before run
	grpc   grpc.ServerStream // set once, before run
	states bool              // set once: state of the world
	peer   string            // set once
	since  time.Time         // set once: when it connected
	serial uint64            // set once
	proxy  *proxy            // set by run at the first request, before the server knows the stream

	wake     chan struct{} // cap 1; written by Publish, read by run
	requests chan *frame   // written and closed by read, read by run
	readErr  error         // written by read before it closes requests

	// The following fields are used by run alone.
	reader     *ads.Reader
	snap       *snapshot
	scope      *push.Scope
	timer      *time.Timer // for the nearest end of a wait, nil when there never was one
	converging time.Time   // since of the oldest context that is not acknowledged yet

	// mu guards the following fields, which run alone changes: it holds mu whenever it touches them,
	// and never while it sends.
	mu     sync.Mutex
	order  order
	doubts map[string]ads.Doubt // what an earlier stream left, for types not asked for yet
}

// serve serves one stream until it ends.
func (s *Server) serve(g grpc.ServerStream, states bool) error {
	if s.current.Load() == nil {
		s.metrics.refused.WithLabelValues("not ready").Inc()
		return status.Error(codes.Unavailable, "not ready: the configuration is not complete yet, try another replica")
	}
	st := &stream{
		server:   s,
		grpc:     g,
		states:   states,
		since:    time.Now(),
		serial:   s.serial.Add(1),
		wake:     make(chan struct{}, 1),
		requests: make(chan *frame),
		reader:   ads.NewReader(states, s.cfg.Limits),
	}
	if p, ok := peer.FromContext(g.Context()); ok {
		st.peer = p.Addr.String()
	}
	st.order = newOrder(s.cfg.RouteWait, s.cfg.RemovalWait)
	go st.read()
	err := st.run(g.Context())
	st.end(err)
	return err
}

// read hands over requests until the stream ends. It ends after run, which ends the stream.
func (st *stream) read() {
	defer close(st.requests)
	for {
		f := &frame{}
		if err := st.grpc.RecvMsg(f); err != nil {
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

// run owns the stream. Only one of these things happens at a time: a request, a new context, the end
// of a wait, the end.
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
			return status.Error(codes.Unavailable, "shutting down: try another replica")
		case f, ok := <-st.requests:
			if !ok {
				if errors.Is(st.readErr, io.EOF) {
					return nil
				}
				return st.readErr
			}
			var err error
			if first, err = st.take(f); err != nil {
				return err
			}
		case <-st.wake:
		case <-expired:
		}
		if st.proxy == nil {
			continue
		}
		if err := st.deliver(ctx, first); err != nil {
			return err
		}
	}
}

// take takes in one request. started says that the client asked for a type for the first time.
func (st *stream) take(f *frame) (started bool, err error) {
	defer f.in.Free()
	r, err := st.reader.Read(f.in.ReadOnlyData())
	if err != nil {
		return false, status.Error(codes.InvalidArgument, err.Error())
	}
	if r.TypeURL == healthType {
		return false, nil
	}
	if st.proxy == nil {
		if err := st.introduce(r.Node); err != nil {
			return false, err
		}
	}
	if r.TypeURL == proxyConfigType {
		return false, nil
	}
	return st.receive(r)
}

// introduce takes in the node, which the first request carries.
func (st *stream) introduce(node []byte) error {
	s := st.server
	if node == nil {
		s.metrics.refused.WithLabelValues("bad node").Inc()
		return status.Error(codes.InvalidArgument, "the first request of a stream has to carry a node")
	}
	p, err := s.nodes.read(node)
	switch {
	case errors.Is(err, errUnserved):
		s.metrics.refused.WithLabelValues("node type").Inc()
		return status.Error(codes.Unimplemented, err.Error())
	case err != nil:
		s.metrics.refused.WithLabelValues("bad node").Inc()
		return status.Error(codes.InvalidArgument, err.Error())
	}
	if s.cfg.Authorize != nil {
		if err := s.cfg.Authorize(st.grpc.Context(), p.Node); err != nil {
			s.metrics.refused.WithLabelValues("not authorized").Inc()
			return err
		}
	}
	st.proxy = p
	st.doubts = s.past.take(p.ID)
	for _, o := range s.add(st) {
		st.doubts = o.doubted(st.doubts)
	}
	s.metrics.connected.WithLabelValues(p.Version).Inc()
	s.log.Info("proxy connected", "proxy", p.ID, "peer", st.peer, "version", p.Version, "delta", !st.states)
	return nil
}

// receive gives a request to its subscription.
func (st *stream) receive(r *ads.Request) (started bool, err error) {
	st.refresh()
	st.mu.Lock()
	defer st.mu.Unlock()
	t := st.order.find(r.TypeURL)
	if t == nil {
		if len(st.order.types) >= st.server.cfg.MaxTypes {
			return false, status.Errorf(codes.ResourceExhausted, "a stream may subscribe to %d types", st.server.cfg.MaxTypes)
		}
		kind := st.server.kinds.of(r.TypeURL)
		t = st.order.add(ads.NewSubscription(kind, st.states, st.server.cache, st.prefix()), st.server.kinds.rank(r.TypeURL))
		t.Distrust(st.doubts[r.TypeURL])
		delete(st.doubts, r.TypeURL)
	}
	out, err := t.Receive(r, st.target(t), st.server.cfg.Limits, time.Now())
	if err != nil {
		return false, status.Error(codes.ResourceExhausted, err.Error())
	}
	st.note(t, r, out)
	return out.Started, nil
}

// prefix begins every nonce of the stream.
func (st *stream) prefix() string {
	return strconv.FormatUint(st.serial, 36) + "." + strconv.FormatInt(st.since.UnixNano(), 36) + "-"
}

// note counts and logs what a request said of a response.
func (st *stream) note(t *typeState, r *ads.Request, out ads.Outcome) {
	m, name := st.server.metrics, short(r.TypeURL)
	refusals := t.Refusals()
	st.countRefusing(t, len(refusals) > 0)
	switch {
	case out.Rejected:
		m.rejects.WithLabelValues(name).Inc()
		var names []string
		for _, f := range refusals {
			names = append(names, f.Name)
		}
		st.server.log.Warn("proxy rejected resources", "proxy", st.proxy.ID, "type", name, "refused", names, "error", r.Rejected.Message)
	case !out.Acknowledged && !out.Started && r.Nonce != "":
		m.stale.WithLabelValues(name).Inc()
	}
}

// countRefusing keeps the number of proxies that refuse something of a type. It compares with what was counted:
// a refusal also ends without a request, when a newer version is sent.
func (st *stream) countRefusing(t *typeState, refusing bool) {
	gauge := st.server.metrics.refusing[short(t.Kind().TypeURL)]
	switch {
	case gauge == nil || refusing == t.refusing:
	case refusing:
		gauge.Inc()
	default:
		gauge.Dec()
	}
	t.refusing = refusing
}

// refresh looks up what the latest context says about the proxy.
func (st *stream) refresh() {
	snap := st.server.current.Load()
	if snap == st.snap {
		return
	}
	st.snap = snap
	scope := snap.context.Scope(snap.context.Classify(st.proxy.Node))
	if scope == st.scope {
		return
	}
	st.mu.Lock()
	defer st.mu.Unlock()
	st.scope = scope
	st.order.outdate()
	if st.converging.IsZero() {
		st.converging = snap.since
		if st.since.After(snap.since) {
			st.converging = st.since // it could not have heard earlier
		}
	}
}

// target is what the client is to have of a type.
func (st *stream) target(t *typeState) resource.Set {
	if !t.current {
		t.to, t.current = st.server.cfg.Generator.Set(t.Kind().TypeURL, st.scope), true
	}
	return t.to
}

// deliver sends what the client lacks. first says that a type is answered for the first time: that
// may cost much, and only so many streams do it at one time.
func (st *stream) deliver(ctx context.Context, first bool) error {
	for {
		if first {
			select {
			case st.server.admit <- struct{}{}:
			case <-ctx.Done():
				return status.FromContextError(ctx.Err()).Err()
			case <-st.server.stopped:
				return status.Error(codes.Unavailable, "shutting down: try another replica")
			}
		}
		r := st.next()
		if first {
			<-st.server.admit
		}
		if r == nil {
			return nil
		}
		if err := st.send(r); err != nil {
			return err
		}
	}
}

// next returns the next response, or nil when there is none; then it sees to the timer and to whether
// the client has converged.
func (st *stream) next() *ads.Response {
	start := time.Now()
	st.refresh()
	st.mu.Lock()
	defer st.mu.Unlock()
	for i := range st.order.types {
		st.target(st.order.types[i])
	}
	r, wait := st.order.next(start)
	if r != nil {
		observeSince(st.server.metrics.pushTime.WithLabelValues(short(r.TypeURL)), start, time.Now())
		return r
	}
	st.arm(wait)
	if !st.converging.IsZero() && st.order.settled() {
		observeSince(st.server.metrics.convergence, st.converging, start)
		st.converging = time.Time{}
	}
	return nil
}

// arm sets the timer; zero means that nothing waits.
func (st *stream) arm(wait time.Duration) {
	switch {
	case wait > 0 && st.timer == nil:
		st.timer = time.NewTimer(wait)
	case wait > 0:
		st.timer.Reset(wait)
	case st.timer != nil:
		st.timer.Stop()
		st.timer = nil
	}
}

// send hands a response to gRPC. It waits while the client does not read.
func (st *stream) send(r *ads.Response) error {
	start := time.Now()
	f := &frame{out: make(mem.BufferSlice, len(r.Parts))}
	for i, p := range r.Parts {
		f.out[i] = mem.SliceBuffer(p)
	}
	if err := st.grpc.SendMsg(f); err != nil {
		return err
	}
	m, name := st.server.metrics, short(r.TypeURL)
	m.pushes.WithLabelValues(name).Inc()
	m.size.WithLabelValues(name).Observe(float64(r.Size()))
	observeSince(m.sendTime, start, time.Now())
	if log := st.server.log; log.IsDebug() {
		log.Debug("pushed", "proxy", st.proxy.ID, "type", name, "resources", r.Resources, "removed", r.Removed, "bytes", r.Size(), "nonce", r.Nonce)
	}
	return nil
}

// end takes the stream out and remembers what is in doubt.
func (st *stream) end(err error) {
	if st.timer != nil {
		st.timer.Stop()
	}
	if st.proxy == nil {
		if err != nil {
			st.server.log.Info("stream refused", "peer", st.peer, "error", err)
		}
		return
	}
	s := st.server
	s.remove(st)
	s.past.put(st.proxy.ID, st.doubted(nil))
	s.metrics.connected.WithLabelValues(st.proxy.Version).Dec()
	st.mu.Lock()
	for _, t := range st.order.types {
		st.countRefusing(t, false)
	}
	st.mu.Unlock()
	s.log.Info("proxy disconnected", "proxy", st.proxy.ID, "peer", st.peer, "after", time.Since(st.since).Round(time.Millisecond), "reason", err)
}

// doubted adds to doubts what this stream leaves in doubt.
func (st *stream) doubted(doubts map[string]ads.Doubt) map[string]ads.Doubt {
	st.mu.Lock()
	defer st.mu.Unlock()
	add := func(typeURL string, d ads.Doubt) {
		if d.None() {
			return
		}
		if doubts == nil {
			doubts = map[string]ads.Doubt{}
		}
		doubts[typeURL] = doubts[typeURL].Or(d)
	}
	for typeURL, d := range st.doubts {
		add(typeURL, d)
	}
	for _, t := range st.order.types {
		add(t.Kind().TypeURL, t.Doubt())
	}
	return doubts
}
