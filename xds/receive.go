package xds

import (
	"context"
	"strconv"
	"time"

	"github.com/hashicorp/go-hclog"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/ashore-mesh/ashore/internal/spiffe"
	"github.com/ashore-mesh/ashore/xds/ads"
	"github.com/ashore-mesh/ashore/xds/resource"
)

// take takes in one request.
func (st *stream) take(ctx context.Context, f *frame) error {
	size := f.in.Len()
	defer func() {
		f.in.Free()
		_ = st.quota.hold(-size) // to hold less cannot fail
	}()
	r, err := ads.ReadRequest(f.in.ReadOnlyData(), st.sotw)
	if err != nil {
		return status.Error(codes.InvalidArgument, err.Error())
	}
	if r.TypeURL == healthType {
		return st.report(ctx, r)
	}
	if isDebug(r.TypeURL) {
		return st.debug(r)
	}
	if st.proxy == nil {
		if err := st.introduce(ctx, r.Node); err != nil {
			return err
		}
	}
	if st.order.Find(r.TypeURL) != nil {
		return st.receive(r)
	}
	// To generate a type for the first time may cost much CPU: nothing below waits for the network or
	// a store.
	select {
	case st.server.admit <- struct{}{}:
		defer func() { <-st.server.admit }()
	case <-ctx.Done():
		return status.FromContextError(ctx.Err()).Err()
	case <-st.server.stopped:
		return errStopped
	}
	if r.TypeURL == ProxyConfigType {
		if st.refresh(); st.scope.Trust == nil {
			return nil // as in Istio: no response where there is nothing to send
		}
	}
	return st.receive(r)
}

// introduce takes in the node of the first request, and registers the workload.
func (st *stream) introduce(ctx context.Context, node []byte) error {
	s := st.server
	if node == nil {
		s.metrics.refused.WithLabelValues("bad node").Inc()
		return status.Error(codes.InvalidArgument, "the first request of a stream must have a node")
	}
	p, err := s.nodes.read(node)
	if err != nil {
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
	st.admitSecrets(ctx, p)
	st.proxy, st.shown = p, p.Node
	s.add(st)
	st.logLine(hclog.Info, "proxy connected", "proxy", p.ID, "stream", string(p.purpose), "peer", st.peer,
		"identity", st.who.Identity, "serial", st.who.Serial, "envoy", p.Envoy, "delta", !st.sotw)
	known := st.who.Identity != (spiffe.ID{})
	if known && st.checks != s.rechecks.Load() { // the pass may have been before the stream was taken in
		if err := s.verifyAgain(st.who); err != nil {
			st.expel(err)
			return errUnauthenticated
		}
	}
	return st.register(ctx)
}

// receive gives a request to its subscription.
func (st *stream) receive(r *ads.Request) error {
	st.refresh()
	st.mu.Lock()
	defer st.mu.Unlock()
	t := st.order.Find(r.TypeURL)
	if t == nil {
		if err := st.mayRead(r.TypeURL); err != nil {
			return err
		}
		t = ads.NewSubscription(kindOf(r.TypeURL), st.sotw, st.server.cache, st.prefix())
		t.Outdated = true
		st.order.Add(t, rankOf(r.TypeURL))
	}
	st.target(t)
	extra := r.Cost()
	if err := st.quota.hold(extra); err != nil {
		return err
	}
	before := t.Names()
	rejected, err := t.Receive(r, time.Now())
	_ = st.quota.hold(-extra)
	if err != nil {
		return status.Error(codes.ResourceExhausted, err.Error())
	}
	if err := st.charge(); err != nil {
		return err
	}
	if r.TypeURL == resource.SecretType && t.Names() != before {
		st.noteSecrets(t, before)
	}
	if rejected {
		st.noteRejection(t, r.Rejected.Message)
	}
	return nil
}

// typeCost is about how much memory a type of a stream takes, in bytes.
const typeCost = 2 << 10

// charge adds what the subscriptions cost now to the quota. Errors: a status, if that is too much.
func (st *stream) charge() error {
	if st.quota == nil {
		return nil
	}
	cost := 0
	for _, t := range st.order.All() {
		st.target(t)
		cost += typeCost + len(t.Kind().TypeURL) + t.Cost()
	}
	if err := st.quota.hold(cost - st.cost); err != nil {
		return err
	}
	st.cost = cost
	return nil
}

// prefix is the beginning of every nonce of the stream.
func (st *stream) prefix() string {
	return strconv.FormatUint(st.serial, 36) + "." + strconv.FormatInt(st.since.UnixNano(), 36) + "-"
}

// noteRejection counts and logs that the client rejected a response.
func (st *stream) noteRejection(t *ads.Subscription, message string) {
	name := short(t.Kind().TypeURL)
	st.server.metrics.rejects.WithLabelValues(name).Inc()
	var names, patches []string
	for _, r := range t.Rejected() {
		names = append(names, r.Name)
		for _, p := range r.Patches {
			patches = append(patches, p.String())
		}
	}
	st.server.peerLog.Log(hclog.Warn, st.logKey()+" "+name, "proxy rejected resources", "proxy", st.proxy.ID,
		"type", name, "rejected", names, "patches", patches, "error", message)
}
