package mcp

import (
	"context"
	"errors"
	"fmt"
	"net"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"

	"github.com/ashore-mesh/ashore/config"
	"github.com/ashore-mesh/ashore/internal/crowd"
	"github.com/ashore-mesh/ashore/internal/feed"
	"github.com/ashore-mesh/ashore/mcp/legacypb"
)

// call is a stream that a caller opened. Its end is told by closing done.
type call struct {
	stream grpc.ServerStream
	from   string // set once: who it is, for people
	why    error  // set before done is closed
	done   chan struct{}
}

// maxStrangers is how many connections there may be that have not proven to be one of the peers. For one too many, whoever has
// the most loses the oldest. Without TLS all are strangers.
const maxStrangers = 64

// greeting has who has proven to be one of the peers count as a stranger no more, and tells who has not.
type greeting struct {
	credentials.TransportCredentials
	turnAway func(from string, why error)
}

// ServerHandshake implements credentials.TransportCredentials.
func (g greeting) ServerHandshake(raw net.Conn) (net.Conn, credentials.AuthInfo, error) {
	conn, info, err := g.TransportCredentials.ServerHandshake(raw)
	stranger, counts := raw.(*crowd.Conn)
	if _, proven := info.(credentials.TLSInfo); err == nil && proven && counts {
		stranger.Leave()
	}
	if err != nil {
		g.turnAway(hostOf(raw.RemoteAddr()), err)
	}
	return conn, info, err
}

// Clone implements credentials.TransportCredentials.
func (g greeting) Clone() credentials.TransportCredentials {
	return greeting{g.TransportCredentials.Clone(), g.turnAway}
}

// errExpired is why a caller is sent away whose certificate has ended meanwhile.
var errExpired = errors.New("the certificate of the caller has expired")

// untilExpiry is within for as long as the certificate of a caller counts; without TLS it is within.
func untilExpiry(within context.Context, stream grpc.ServerStream) (context.Context, context.CancelFunc) {
	if p, ok := peer.FromContext(stream.Context()); ok {
		if info, ok := p.AuthInfo.(credentials.TLSInfo); ok && len(info.State.PeerCertificates) > 0 {
			return context.WithDeadlineCause(within, info.State.PeerCertificates[0].NotAfter, errExpired)
		}
	}
	return context.WithCancel(within)
}

// errNobody is how a resource-sink stands that nobody has called.
var errNobody = errors.New("nobody has called yet")

// listen serves ResourceSink: callers bring their resources. One counts at a time, the last one: the one before it may be
// a connection that is dead. An address that is taken, or files that cannot be read, are an outage: they may be mended.
func (s *Source) listen(ctx context.Context, out chan<- feed.Batch[*config.Object]) error {
	for ctx.Err() == nil {
		err := s.serve(ctx, out)
		if ctx.Err() != nil || !s.stand(ctx, out, fmt.Sprintf("nobody can call %s (%s): see address, caFile, certFile and keyFile", s.cfg.Address, reason(err))) || !sleep(ctx, s.waits.next()) {
			break
		}
	}
	return nil
}

// serve listens until ctx ends, or it cannot.
func (s *Source) serve(ctx context.Context, out chan<- feed.Batch[*config.Object]) error {
	creds, err := s.cfg.serverCredentials()
	if err != nil {
		return err
	}
	creds = greeting{creds, s.turnAway}
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", s.cfg.Address)
	if err != nil {
		return err
	}
	s.waits.reset()
	g := grpc.NewServer(grpc.Creds(creds), grpc.ForceServerCodecV2(frames{encoding.GetCodecV2("proto")}), grpc.MaxRecvMsgSize(s.cfg.MaxMessage), grpc.MaxConcurrentStreams(4), grpc.MaxHeaderListSize(64<<10),
		grpc.ConnectionTimeout(20*time.Second), grpc.KeepaliveParams(keepalive.ServerParameters{Time: 30 * time.Second, Timeout: 10 * time.Second}),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: 10 * time.Second, PermitWithoutStream: true}), grpc.UnknownServiceHandler(s.elsewhere))
	g.RegisterService(&grpc.ServiceDesc{ServiceName: legacypb.ResourceSink_ServiceDesc.ServiceName, HandlerType: (*any)(nil), Metadata: legacypb.ResourceSink_ServiceDesc.Metadata,
		Streams: []grpc.StreamDesc{{StreamName: "EstablishResourceStream", Handler: s.called, ServerStreams: true, ClientStreams: true}}}, s)
	failed := make(chan error, 1)
	s.parts.Go(func() { failed <- g.Serve(crowd.New(l, maxStrangers)) })
	defer g.Stop()
	return s.receive(ctx, out, failed)
}

// called hands a stream over and waits until it is done with.
func (s *Source) called(_ any, stream grpc.ServerStream) error {
	c := &call{stream: stream, from: s.caller(stream), done: make(chan struct{})}
	select {
	case s.calls <- c:
	case <-stream.Context().Done():
		return stream.Context().Err()
	}
	select {
	case <-c.done:
		code := codes.Unavailable
		if errors.Is(c.why, errExpired) {
			code = codes.Unauthenticated
		}
		return status.Error(code, reason(c.why))
	case <-stream.Context().Done():
		return stream.Context().Err()
	}
}

// receive speaks with one caller after the other.
func (s *Source) receive(ctx context.Context, out chan<- feed.Batch[*config.Object], failed <-chan error) error {
	if s.absent = errNobody; !s.stand(ctx, out, s.outage(s.absent)) {
		return nil
	}
	for {
		away, over := s.away, (<-chan time.Time)(nil)
		if left := turnedGap - time.Since(s.strayed.at); left > 0 { // until then away keeps the latest
			away, over = nil, time.After(left)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-over:
		case t := <-away:
			if s.stranger(t, time.Now()); !s.stand(ctx, out, s.outage(s.absent)) {
				return nil
			}
		case err := <-failed:
			return err
		case c := <-s.calls:
			s.next = c
		}
		for s.next != nil {
			c := s.next
			s.next = nil
			s.converse(ctx, c, out)
		}
	}
}

// converse speaks with a caller until it is gone.
func (s *Source) converse(ctx context.Context, c *call, out chan<- feed.Batch[*config.Object]) {
	s.touch.stream, s.strayed = false, turnedAway{}
	within, cancel := untilExpiry(ctx, c.stream)
	stop := context.AfterFunc(c.stream.Context(), cancel)
	defer stop()
	if wrong := s.rivals.doubts(s.cfg.Address, time.Now()); wrong != "" {
		s.stand(ctx, out, wrong) // when ctx ends, so does what follows
	}
	c.why = s.speak(within, cancel, c.stream, out)
	switch {
	case errors.Is(context.Cause(within), errExpired):
		c.why = errExpired
	case s.next != nil:
		s.replaced(c.from, s.next.from, time.Now())
	}
	close(c.done)
	if s.absent = c.why; ctx.Err() == nil {
		s.lost(ctx, out, c.why)
	}
}
