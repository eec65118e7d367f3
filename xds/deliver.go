package xds

import (
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/status"

	"github.com/ashore-mesh/ashore/xds/ads"
)

// refresh moves the stream to the latest context.
func (st *stream) refresh() {
	snap := st.server.current.Load()
	if snap == st.snap {
		return
	}
	st.snap = snap
	node := st.node(snap.context)
	scope := snap.context.Scope(snap.context.Classify(node))
	if scope == st.scope && node == st.shown {
		return
	}
	st.mu.Lock()
	defer st.mu.Unlock()
	st.shown = node
	if scope == st.scope {
		return
	}
	st.scope = scope
	for _, t := range st.order.All() {
		t.Outdated = true
	}
	if st.converging.IsZero() {
		st.converging = snap.since
		if st.since.After(snap.since) {
			st.converging = st.since // it connected later
		}
	}
}

// target sees to it that a type has what the latest context says, or the latest configuration
// objects. Called with mu held.
func (st *stream) target(t *ads.Subscription) {
	switch typeURL := t.Kind().TypeURL; {
	case st.reads.Load() && st.server.knows(typeURL):
		t.To, _ = st.server.cfg.Objects.Set(typeURL)
	case t.Outdated:
		t.To = st.server.cfg.Generator.Set(typeURL, st.scope)
	}
	t.Outdated = false
}

// errStopped ends the streams when the server stops.
var errStopped = status.Error(codes.Unavailable, "shutting down: try another replica")

// deliver sends what the client lacks.
func (st *stream) deliver() error {
	for {
		r := st.next()
		if r == nil {
			return nil
		}
		if err := st.send(r); err != nil {
			return err
		}
	}
}

// next returns the next response. Without one it sets the timer, and notes what the client has.
func (st *stream) next() *ads.Response {
	now := time.Now()
	st.refresh()
	st.mu.Lock()
	defer st.mu.Unlock()
	for _, t := range st.order.All() {
		st.target(t)
	}
	r, wait := st.order.Next(now)
	if r != nil {
		return r
	}
	if t := st.order.Find(ProxyConfigType); t != nil && t.Settled() && len(t.Rejected()) == 0 && st.scope.Trust != nil {
		st.bundle = st.scope.Trust.ID
	}
	if st.timer = nil; wait > 0 {
		st.timer = time.After(wait)
	}
	if !st.converging.IsZero() && st.order.Settled() {
		st.server.metrics.convergence.Observe(now.Sub(st.converging).Seconds())
		st.converging = time.Time{}
	}
	return nil
}

// send sends a response. It waits while the client does not read.
func (st *stream) send(r *ads.Response) error {
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
	if log := st.server.log; log.IsDebug() {
		log.Debug("pushed", "proxy", st.proxy.ID, "type", name, "bytes", r.Size(), "nonce", r.Nonce)
	}
	return nil
}
