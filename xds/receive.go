package xds

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/hashicorp/go-hclog"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/ashore-mesh/ashore/xds/ads"
)

// take takes in one request. started means that the client asked for a type for the first time.
func (st *stream) take(ctx context.Context, f *frame) (started bool, err error) {
	size := f.in.Len()
	defer func() {
		f.in.Free()
		_ = st.quota.hold(-size) // to hold less cannot fail
	}()
	r, err := ads.ReadRequest(f.in.ReadOnlyData(), st.states, st.server.cfg.Limits)
	if err != nil {
		return false, status.Error(codes.InvalidArgument, err.Error())
	}
	if !st.servable(r.TypeURL) {
		return false, st.server.notReady()
	}
	if r.TypeURL == healthType {
		return false, st.report(ctx, r)
	}
	if st.proxy == nil {
		if err := st.introduce(ctx, r.Node); err != nil {
			return false, err
		}
	}
	if st.find(r.TypeURL) != nil {
		return false, st.receive(r)
	}
	err = st.generate(ctx, func() error {
		if r.TypeURL == ProxyConfigType {
			if st.refresh(); st.scope.Trust == nil {
				return nil // as in Istio: no response where there is nothing to send
			}
		}
		started = true
		return st.receive(r)
	})
	return started, err
}

// introduce takes in the node, which the first request carries.
func (st *stream) introduce(ctx context.Context, node []byte) error {
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
	if err := authorize(&p.Node, st.who); err != nil {
		s.metrics.refused.WithLabelValues("not authorized").Inc()
		return err
	}
	if err := st.quota.hold(len(node)); err != nil {
		return err
	}
	st.proxy = p
	rejected, ok := s.add(st)
	if !ok {
		st.proxy = nil
		s.metrics.refused.WithLabelValues("too many streams").Inc()
		return status.Errorf(codes.ResourceExhausted, "node %q has %d streams, no more are served", p.ID,
			maxClientStreams)
	}
	st.resume = rejected
	if p.purpose != forControl {
		st.counted = s.metrics.connected.join(p.Version)
	}
	st.logLine(hclog.Info, "proxy connected", "proxy", p.ID, "stream", string(p.purpose), "peer", st.peer,
		"identity", st.who.Identity, "serial", st.who.Serial, "version", p.Version, "delta", !st.states)
	if st.who.chain != nil && st.checks != s.rechecks.Load() { // the pass may have been before the stream was taken in
		if _, err := s.verify(st.who, time.Now()); err != nil {
			st.expel(err)
			return errUnauthenticated
		}
	}
	if st.early {
		return nil
	}
	return st.register(ctx)
}

// receive gives a request to its subscription.
func (st *stream) receive(r *ads.Request) error {
	st.refresh()
	st.mu.Lock()
	defer st.mu.Unlock()
	t := st.find(r.TypeURL)
	if t == nil {
		var err error
		if t, err = st.addType(r.TypeURL); err != nil {
			return err
		}
	}
	st.target(t)
	extra := r.Cost()
	if err := st.quota.hold(extra); err != nil {
		return err
	}
	out, err := t.Receive(r, st.server.cfg.Limits, time.Now())
	_ = st.quota.hold(-extra)
	if err == nil {
		err = st.checkNames()
	}
	if err != nil {
		return status.Error(codes.ResourceExhausted, err.Error())
	}
	if err := st.charge(); err != nil {
		return err
	}
	st.note(t, r, out)
	st.noteBundle(t)
	return nil
}

// addType adds a type that the client asks for. Called with mu held.
func (st *stream) addType(typeURL string) (*typeState, error) {
	s := st.server
	if len(st.types) >= s.cfg.MaxTypes {
		return nil, status.Errorf(codes.ResourceExhausted, "a stream may subscribe to %d types", s.cfg.MaxTypes)
	}
	objects, err := st.mayRead(typeURL)
	if err != nil {
		return nil, err
	}
	kind := s.kinds.of(typeURL)
	t := &typeState{Subscription: ads.NewSubscription(kind, st.states, s.cache, st.prefix()), objects: objects}
	// What an Envoy rejected of secrets counts as long as its process lives. That it does, it shows
	// by naming clusters that it has.
	if cds := st.find(ClusterType); !kind.Single || cds != nil && cds.Resumed() {
		t.Resume(st.resume[typeURL])
	}
	delete(st.resume, typeURL)
	st.types = slices.Insert(st.types, st.order.Add(t.Subscription, s.kinds.rank(typeURL)), t)
	return t, nil
}

// checkNames bounds the names of all types together as those of one.
func (st *stream) checkNames() error {
	bytes, most := 0, st.server.cfg.Limits.MaxBytes()
	for _, t := range st.types {
		bytes += t.Names().Bytes()
	}
	if bytes > most {
		return fmt.Errorf("the names of all subscriptions have %d bytes, at most %d are allowed", bytes, most)
	}
	return nil
}

// charge has the quota hold what the subscriptions cost now. Errors: a status, when that is too
// much.
func (st *stream) charge() error {
	if st.quota == nil {
		return nil
	}
	cost := 0
	for _, t := range st.types {
		st.target(t)
		cost += t.Cost()
	}
	if err := st.quota.hold(cost - st.cost); err != nil {
		return err
	}
	st.cost = cost
	return nil
}

// prefix begins every nonce of the stream.
func (st *stream) prefix() string {
	return strconv.FormatUint(st.serial, 36) + "." + strconv.FormatInt(st.since.UnixNano(), 36) + "-"
}

// note counts and logs what a request said about a response.
func (st *stream) note(t *typeState, r *ads.Request, out ads.Outcome) {
	m, name := st.server.metrics, short(r.TypeURL)
	if out.Rejected || t.rejecting {
		st.countRejecting(t, len(t.Rejected()) > 0)
	}
	switch {
	case out.Rejected:
		m.rejects.WithLabelValues(name).Inc()
		var names []string
		for _, r := range t.Rejected() {
			names = append(names, r.Name)
		}
		st.server.peerLog.Log(hclog.Warn, st.logKey()+" "+name, "proxy rejected resources", "proxy", st.proxy.ID,
			"type", name, "rejected", names, "error", r.Rejected.Message)
	case !out.Acknowledged && !out.Started && r.Nonce != "":
		m.stale.WithLabelValues(name).Inc()
	}
}

// countRejecting keeps the number of streams that reject something of a type. It compares with what
// was counted: a rejection also ends without a request, when a newer version is sent.
func (st *stream) countRejecting(t *typeState, rejecting bool) {
	gauge := st.server.metrics.rejecting[short(t.Kind().TypeURL)]
	switch {
	case gauge == nil || rejecting == t.rejecting:
	case rejecting:
		gauge.Inc()
	default:
		gauge.Dec()
	}
	t.rejecting = rejecting
}
