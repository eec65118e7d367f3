package agent

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/ashore-mesh/ashore/xds/ads"
)

const (
	// maxEnvoyStreams is how many streams are served at a time: Envoy has one, and for a while two when it starts anew.
	maxEnvoyStreams = 8
	// envoySendWait is how long a response may wait for Envoy to read.
	envoySendWait = 5 * time.Minute
	// envoyNodeWait is how long a stream may last without a first request.
	envoyNodeWait = 30 * time.Second
	// envoySettleWait is how long a new Envoy has to ask for everything that it wants; then what only the one before
	// wanted is not asked of the control plane any more.
	envoySettleWait = time.Minute
)

// Register adds the discovery service to the server that Envoy talks to, which newLocalServer made.
func (p *proxy) Register(g *grpc.Server) {
	g.RegisterService(&grpc.ServiceDesc{
		ServiceName: "envoy.service.discovery.v3.AggregatedDiscoveryService",
		HandlerType: (*any)(nil),
		Streams: []grpc.StreamDesc{
			{StreamName: "DeltaAggregatedResources", ServerStreams: true, ClientStreams: true,
				Handler: func(_ any, g grpc.ServerStream) error { return p.serve(g, false) }},
			{StreamName: "StreamAggregatedResources", ServerStreams: true, ClientStreams: true,
				Handler: func(_ any, g grpc.ServerStream) error { return p.serve(g, true) }},
		},
		Metadata: "envoy/service/discovery/v3/ads.proto",
	}, p)
}

// envoyCall is the I/O of one stream of Envoy.
type envoyCall struct {
	proxy  *proxy            // set once
	grpc   grpc.ServerStream // set once
	states bool              // set once

	requests chan []byte   // written and closed by read
	readErr  error         // written by read before it closes requests
	stuck    chan struct{} // cap 1; a send takes too long

	stream *envoyStream // guarded by proxy.mu; set by run at the first request
}

// serve serves one stream until it ends.
func (p *proxy) serve(g grpc.ServerStream, states bool) error {
	c := &envoyCall{proxy: p, grpc: g, states: states, requests: make(chan []byte), stuck: make(chan struct{}, 1)}
	go c.read()
	done := make(chan error, 1)
	go func() {
		err := c.run(g.Context())
		c.end(err)
		done <- err
	}()
	select {
	case err := <-done:
		return err
	case <-c.stuck: // returning ends the stream, and so the send, and run
		return status.Errorf(codes.DeadlineExceeded, "Envoy did not read a response within %s", envoySendWait)
	}
}

// read hands over requests until the stream ends. It ends after run, which ends the stream.
func (c *envoyCall) read() {
	defer close(c.requests)
	for {
		f := &frame{}
		if err := c.grpc.RecvMsg(f); err != nil {
			c.readErr = err
			return
		}
		raw := bytes.Clone(f.in.ReadOnlyData())
		f.in.Free()
		select {
		case c.requests <- raw:
		case <-c.grpc.Context().Done():
			return
		}
	}
}

// run owns the stream. Only one of these things happens at a time: a request, news, the end of a wait, the end.
func (c *envoyCall) run(ctx context.Context) error {
	if err := c.begin(ctx); err != nil || c.stream == nil {
		return err
	}
	st, settled := c.stream, time.NewTimer(envoySettleWait)
	defer settled.Stop()
	for {
		wait, err := c.deliver(st)
		if err != nil {
			return err
		}
		var expired <-chan time.Time
		if wait > 0 {
			expired = time.After(wait)
		}
		select {
		case <-ctx.Done():
			return status.FromContextError(ctx.Err()).Err()
		case raw, ok := <-c.requests:
			if !ok {
				return c.ended()
			}
			if err := c.take(st, raw); err != nil {
				return err
			}
		case <-st.wake:
		case <-expired:
		case <-settled.C:
			c.proxy.locked(func() { c.proxy.relay.settle(st) })
		}
	}
}

// ended is why there are no more requests.
func (c *envoyCall) ended() error {
	if errors.Is(c.readErr, io.EOF) {
		return nil
	}
	return c.readErr
}

// begin waits for the first request, which says who Envoy is, and takes the stream in, unless it ended before that.
func (c *envoyCall) begin(ctx context.Context) error {
	select {
	case <-ctx.Done():
		return status.FromContextError(ctx.Err()).Err()
	case <-time.After(envoyNodeWait):
		return status.Errorf(codes.DeadlineExceeded, "no request came within %s", envoyNodeWait)
	case raw, ok := <-c.requests:
		if !ok {
			return c.ended()
		}
		r, err := ads.NewReader(c.states, ads.Limits{Names: maxProxyNames}).Read(raw)
		if err != nil {
			return status.Error(codes.InvalidArgument, err.Error())
		}
		if err := c.proxy.introduce(r.Node); err != nil {
			return status.Error(codes.InvalidArgument, err.Error())
		}
		if err := c.open(); err != nil {
			return err
		}
		return c.take(c.stream, raw)
	}
}

func (c *envoyCall) open() (err error) {
	p := c.proxy
	p.locked(func() {
		if len(p.relay.streams) >= maxEnvoyStreams {
			err = status.Errorf(codes.ResourceExhausted, "%d streams are open, no more are served", maxEnvoyStreams)
			return
		}
		c.stream = p.relay.open(c.states, p.now())
	})
	if err == nil {
		p.log.Debug("envoy asks for its configuration", "stream", c.stream.serial, "delta", !c.states)
	}
	return err
}

// take takes in one request.
func (c *envoyCall) take(st *envoyStream, raw []byte) (err error) {
	r, err := st.reader.Read(raw)
	if err != nil {
		return status.Error(codes.InvalidArgument, err.Error())
	}
	if r.Rejected != nil {
		c.proxy.log.Warn("envoy refuses configuration", "type", r.TypeURL, "error", r.Rejected.Message)
	}
	c.proxy.locked(func() { err = st.receive(r, c.proxy.now()) })
	if err != nil {
		return status.Error(codes.ResourceExhausted, err.Error())
	}
	return nil
}

// deliver sends what Envoy lacks. wait is how long until time alone changes that, zero for never.
func (c *envoyCall) deliver(st *envoyStream) (wait time.Duration, err error) {
	for {
		var r *ads.Response
		c.proxy.locked(func() {
			if err = st.failed; err != nil {
				return
			}
			if r, wait = st.next(c.proxy.now()); r == nil {
				st.settle(c.proxy.now())
			}
		})
		if err != nil {
			return 0, status.Error(codes.ResourceExhausted, err.Error())
		}
		if r == nil {
			return wait, nil
		}
		if err := c.send(r); err != nil {
			return 0, err
		}
	}
}

// send hands a response to gRPC. It waits while Envoy does not read, but not for ever.
func (c *envoyCall) send(r *ads.Response) error {
	t := time.AfterFunc(envoySendWait, func() { c.stuck <- struct{}{} })
	defer t.Stop()
	if err := c.grpc.SendMsg(newFrame(r.Parts...)); err != nil {
		return fmt.Errorf("send to Envoy: %w", err)
	}
	return nil
}

// end takes the stream out.
func (c *envoyCall) end(err error) {
	p := c.proxy
	p.locked(func() {
		if c.stream != nil {
			p.relay.close(c.stream, p.now())
		}
	})
	if c.stream != nil {
		p.log.Debug("stream of envoy ended", "stream", c.stream.serial, "reason", err)
	} else if err != nil {
		p.log.Warn("stream refused: it is not this agent's envoy, or not one that it understands", "reason", err)
	}
}
