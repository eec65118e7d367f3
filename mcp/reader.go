package mcp

import (
	"cmp"
	"errors"
	"io"
	"net"
	"strconv"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"

	"github.com/ashore-mesh/ashore/internal/audit"
	"github.com/ashore-mesh/ashore/internal/spiffe"
	"github.com/ashore-mesh/ashore/mcp/legacypb"
)

// reader is one stream. One goroutine, run, owns it and sends; another one reads, and a third one, await, looks who it is,
// however long a send takes.
type reader struct {
	*Server
	stream   grpc.ServerStream               // set once
	from     string                          // set once
	since    time.Time                       // set once
	who      spiffe.ID                       // set once, before the others begin
	requests chan *legacypb.RequestResources // written and closed by read
	recheck  chan struct{}                   // cap 1; written by Recheck
	stuck    chan struct{}                   // cap 1; written when a send takes too long
	supply   supply                          // belongs to run, but for its find
	node     string                          // belongs to run
	face     face
}

// sendWait is how long an answer may wait for a sink to read.
const sendWait = 5 * time.Minute

// establish serves one stream.
func (s *Server) establish(_ any, stream grpc.ServerStream) error {
	r := &reader{Server: s, stream: stream, requests: make(chan *legacypb.RequestResources), recheck: make(chan struct{}, 1), stuck: make(chan struct{}, 1),
		since: time.Now(), supply: supply{find: s.cfg.Catalog.Collection}}
	if p, ok := peer.FromContext(stream.Context()); ok {
		r.from = p.Addr.String()
	}
	var until time.Time
	var err error
	if r.who, until, err = r.identify(); err != nil {
		return err
	}
	if !s.cfg.Catalog.Ready() {
		return status.Error(codes.Unavailable, "not ready: the configuration is not complete yet, try another replica")
	}
	r.showUntil(until)
	if err := s.enter(r); err != nil {
		r.record(audit.Refused, status.Convert(err).Message())
		return err
	}
	defer s.leave(r)
	r.record(audit.OK, "")
	done := make(chan error, 1)
	go r.read()
	go func() { done <- r.run() }()
	err = r.await(done, until)
	s.cfg.Log.Info("a reader of configuration is gone", "peer", r.from, "identity", r.who, "reason", err)
	return err
}

// await waits until run is done, or there is a reason to end the stream before: returning ends it, and so the send, and the
// others.
func (r *reader) await(done <-chan error, until time.Time) error {
	expired, stop := alarm(until)
	defer func() { stop() }()
	for {
		select {
		case err := <-done:
			return err
		case <-r.stuck:
			return status.Errorf(codes.DeadlineExceeded, "an answer could not be sent within %s", sendWait)
		case <-r.stopped:
			return status.Error(codes.Unavailable, "shutting down: try another replica")
		case <-expired:
			return status.Error(codes.Unauthenticated, "the client certificate has expired: connect with a newer one")
		case <-r.recheck:
			_, until, err := r.identify()
			if err != nil {
				return err
			}
			stop()
			expired, stop = alarm(until)
			r.showUntil(until)
		}
	}
}

// errNotBelieved tells a reader no more than it must; the audit log says the rest.
var errNotBelieved = status.Error(codes.Unauthenticated, "authentication required: the client certificate is missing, out of date, revoked or not of this mesh")

// identify asks who is at the other end, and whether they may read. Why they may not is written down.
func (r *reader) identify() (who spiffe.ID, until time.Time, err error) {
	who, until, why := r.cfg.Identify(r.stream.Context())
	if why != nil {
		r.record(audit.Refused, why.Error())
		return who, until, errNotBelieved
	}
	if err = refuse(r.cfg.Catalog.May(who)); err != nil {
		r.record(audit.Refused, status.Convert(err).Message())
	}
	return who, until, err
}

// party is whom a stream counts for: who proves nothing is where he calls from.
func (r *reader) party() string {
	host, _, err := net.SplitHostPort(r.from)
	if err != nil {
		host = r.from
	}
	return cmp.Or(r.who.String(), host)
}

// record writes down who reads, or may not, as long as it is not too often.
func (r *reader) record(outcome, reason string) {
	who := r.party()
	record, silent := r.known.Allow(who, time.Now())
	if !record {
		return
	}
	if outcome != audit.OK {
		r.cfg.Log.Warn("a reader of configuration was refused", "peer", r.from, "identity", r.who, "error", reason, "not logged before", silent)
	}
	if r.cfg.Audit == nil {
		return
	}
	e := audit.Event{Action: audit.ConfigRead, Actor: who, Target: "everything", Outcome: outcome, Reason: reason,
		Details: map[string]string{"peer": r.from, "protocol": ResourceSource}}
	if silent > 0 {
		e.Details["unwritten"] = strconv.Itoa(silent)
	}
	r.cfg.Audit(e)
}

// refuse is the answer to a reader for why it may not read; nil for nil.
func refuse(why error) error {
	switch {
	case why == nil:
		return nil
	case errors.Is(why, ErrUnknownReader):
		return status.Error(codes.Unauthenticated, why.Error())
	}
	return status.Error(codes.PermissionDenied, why.Error())
}

// read hands over requests until the stream ends.
func (r *reader) read() {
	defer close(r.requests)
	for {
		m := &legacypb.RequestResources{}
		if err := r.stream.RecvMsg(m); err != nil {
			if !errors.Is(err, io.EOF) {
				r.cfg.Log.Debug("a reader of configuration ended its stream", "peer", r.from, "error", err)
			}
			return
		}
		select {
		case r.requests <- m:
		case <-r.stream.Context().Done():
			return
		}
	}
}

// run owns the stream. Only one of these things happens at a time: a request, other objects, the end.
func (r *reader) run() error {
	wake, unwatch := r.cfg.Catalog.watch()
	defer unwatch()
	for {
		select {
		case <-r.stream.Context().Done():
			return status.FromContextError(r.stream.Context().Err()).Err()
		case m, ok := <-r.requests:
			if !ok {
				return nil
			}
			if err := r.take(m); err != nil {
				return err
			}
		case <-wake:
		}
		if err := r.deliver(); err != nil {
			return err
		}
	}
}

// alarm rings at a time; never when that is zero.
func alarm(at time.Time) (rings <-chan time.Time, stop func()) {
	if at.IsZero() {
		return nil, func() {}
	}
	t := time.NewTimer(time.Until(at))
	return t.C, func() { t.Stop() }
}

// take takes in one request.
func (r *reader) take(m *legacypb.RequestResources) error {
	if r.node == "" {
		r.node = clip(m.GetSinkNode().GetId())
		r.cfg.Log.Info("a reader of configuration is here", "peer", r.from, "identity", r.who, "node", r.node)
	}
	what, err := r.supply.receive(m, time.Now())
	if err != nil {
		return status.Error(codes.InvalidArgument, err.Error())
	}
	switch what {
	case refused:
		r.cfg.Log.Warn("a reader refused configuration", "peer", r.from, "identity", r.who, "collection", clip(m.Collection), "error", clip(m.ErrorDetail.GetMessage()))
	case stale:
		r.cfg.Log.Debug("a stale answer was left out", "peer", r.from, "collection", clip(m.Collection), "nonce", clip(m.ResponseNonce))
	}
	return nil
}

// deliver sends what there is to send.
func (r *reader) deliver() error {
	for {
		m := r.supply.next()
		r.show()
		if m == nil {
			return nil
		}
		late := time.AfterFunc(sendWait, func() {
			select {
			case r.stuck <- struct{}{}:
			default:
			}
		})
		err := r.stream.SendMsg(m)
		late.Stop()
		if err != nil {
			return err
		}
	}
}
