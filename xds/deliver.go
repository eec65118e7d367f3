package xds

import (
	"context"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/status"

	"github.com/ashore-mesh/ashore/xds/ads"
)

// refresh moves the stream to the latest context and the latest configuration objects.
func (st *stream) refresh() {
	st.outdateObjects()
	snap := st.server.current.Load()
	if snap == st.snap || st.early {
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
	for _, t := range st.types {
		t.current = false
	}
	if st.converging.IsZero() {
		st.converging = snap.since
		if st.since.After(snap.since) {
			st.converging = st.since // it connected later
		}
	}
}

// target sees to it that a type has what the latest context says. Called with mu held.
func (st *stream) target(t *typeState) {
	switch {
	case t.current:
	case t.objects:
		t.To, _ = st.server.cfg.Objects.Set(t.Kind().TypeURL)
	default:
		t.To = st.server.cfg.Generator.Set(t.Kind().TypeURL, st.scope)
	}
	t.current = true
}

// generate calls f, which makes resources for the first time and may cost much CPU, when fewer than
// Admissions others do. f must not wait for the network or a store.
func (st *stream) generate(ctx context.Context, f func() error) error {
	s := st.server
	select {
	case s.admit <- struct{}{}:
		defer func() { <-s.admit }()
		return f()
	case <-ctx.Done():
		return status.FromContextError(ctx.Err()).Err()
	case <-s.stopped:
		return errStopped
	}
}

// errStopped ends the streams when the server stops.
var errStopped = status.Error(codes.Unavailable, "shutting down: try another replica")

// deliver sends what the client lacks. first means that a type is answered for the first time.
func (st *stream) deliver(ctx context.Context, first bool) error {
	for {
		var r *ads.Response
		next := func() error {
			r = st.next()
			return nil
		}
		if !first {
			_ = next() // it has no error
		} else if err := st.generate(ctx, next); err != nil {
			return err
		}
		if r == nil {
			return nil
		}
		if err := st.charge(); err != nil {
			return err
		}
		if err := st.send(r); err != nil {
			return err
		}
	}
}

// next returns the next response. Without one it sets the timer, and notes what the client has.
func (st *stream) next() *ads.Response {
	start := time.Now()
	st.refresh()
	st.mu.Lock()
	defer st.mu.Unlock()
	for _, t := range st.types {
		st.target(t)
	}
	r, wait := st.order.Next(start)
	if r != nil {
		observeSince(st.server.metrics.pushTime.WithLabelValues(short(r.TypeURL)), start, time.Now())
		return r
	}
	if t := st.find(ProxyConfigType); t != nil && t.Settled() && len(t.Rejected()) == 0 && st.scope.Trust != nil {
		st.bundle = st.scope.Trust.ID
	}
	st.arm(wait)
	if !st.converging.IsZero() && st.order.Settled() {
		observeSince(st.server.metrics.convergence, st.converging, start)
		st.converging = time.Time{}
	}
	return nil
}

// arm sets the timer; zero stops it.
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

// send sends a response. It waits while the client does not read.
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
		log.Debug("pushed", "proxy", st.proxy.ID, "type", name, "resources", r.Resources, "removed", r.Removed,
			"bytes", r.Size(), "nonce", r.Nonce)
	}
	return nil
}
