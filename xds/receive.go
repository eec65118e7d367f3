package xds

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/hashicorp/go-hclog"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/ashore-mesh/ashore/xds/ads"
)

// take takes in one request. started says that the client asked for a type for the first time.
func (st *stream) take(ctx context.Context, f *frame) (started bool, err error) {
	size := f.in.Len()
	defer func() {
		f.in.Free()
		_ = st.quota.hold(-size) // to hold less cannot fail
	}()
	r, err := st.reader.Read(f.in.ReadOnlyData())
	if err != nil {
		return false, status.Error(codes.InvalidArgument, err.Error())
	}
	if !st.servable(r.TypeURL) {
		return false, st.server.notReady()
	}
	if r.TypeURL == healthType {
		return false, st.report(ctx, r)
	}
	if st.proxy == nil || st.find(r.TypeURL) == nil {
		if err := st.enter(ctx); err != nil {
			return false, err
		}
		defer st.leave()
	}
	if st.proxy == nil {
		if err := st.introduce(ctx, r.Node); err != nil {
			return false, err
		}
	}
	if r.TypeURL == ProxyConfigType {
		if st.refresh(); st.scope.Trust == nil {
			return false, nil // as in Istio: who asks expects no answer where there is nothing to say
		}
	}
	return st.receive(r)
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
	others, doubts, ok := s.add(st)
	if !ok {
		st.proxy = nil
		s.metrics.refused.WithLabelValues("too many streams").Inc()
		return status.Errorf(codes.ResourceExhausted, "node %q has %d streams, no more are served", p.ID,
			maxClientStreams)
	}
	for _, o := range others {
		doubts = o.doubted(doubts)
	}
	st.mu.Lock()
	st.doubts = doubts
	st.mu.Unlock()
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
func (st *stream) receive(r *ads.Request) (started bool, err error) {
	st.refresh()
	st.mu.Lock()
	defer st.mu.Unlock()
	t := st.find(r.TypeURL)
	if t == nil {
		if len(st.types) >= st.server.cfg.MaxTypes {
			return false, status.Errorf(codes.ResourceExhausted, "a stream may subscribe to %d types",
				st.server.cfg.MaxTypes)
		}
		objects, err := st.mayRead(r.TypeURL)
		if err != nil {
			return false, err
		}
		kind := st.server.kinds.of(r.TypeURL)
		t = st.add(ads.NewSubscription(kind, st.states, st.server.cache, st.prefix()), st.server.kinds.rank(r.TypeURL))
		t.objects = objects
		t.Distrust(st.doubt(r.TypeURL))
		delete(st.doubts, r.TypeURL)
	}
	extra := t.CostOf(r, st.target(t))
	if err := st.quota.hold(extra); err != nil {
		return false, err
	}
	out, err := t.Receive(r, st.target(t), st.server.cfg.Limits, time.Now())
	_ = st.quota.hold(-extra)
	if err == nil {
		err = st.checkNames()
	}
	if err != nil {
		return false, status.Error(codes.ResourceExhausted, err.Error())
	}
	if err := st.charge(); err != nil {
		return false, err
	}
	st.note(t, r, out)
	st.offers(t)
	return out.Started, nil
}

// doubt is what an earlier stream left about a type. What a client refused counts as long as its
// process lives, which it shows by naming clusters that it has.
func (st *stream) doubt(typeURL string) ads.Doubt {
	d := st.doubts[typeURL]
	if cds := st.find(ClusterType); cds == nil || !cds.Resumed() {
		d.Refused = nil
	}
	return d
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
		cost += t.Cost(st.target(t))
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

// note counts and logs what a request said of a response.
func (st *stream) note(t *typeState, r *ads.Request, out ads.Outcome) {
	m, name := st.server.metrics, short(r.TypeURL)
	if out.Rejected || t.refusing {
		st.countRefusing(t, t.Refusing())
	}
	switch {
	case out.Rejected:
		m.rejects.WithLabelValues(name).Inc()
		var names []string
		for _, f := range t.Refusals() {
			names = append(names, f.Name)
		}
		st.server.peerLog.Log(hclog.Warn, st.logKey()+" "+name, "proxy rejected resources", "proxy", st.proxy.ID,
			"type", name, "refused", names, "error", r.Rejected.Message)
	case !out.Acknowledged && !out.Started && r.Nonce != "":
		m.stale.WithLabelValues(name).Inc()
	}
}

// countRefusing keeps the number of proxies that refuse something of a type. It compares with what
// was counted: a refusal also ends without a request, when a newer version is sent.
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
