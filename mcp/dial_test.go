package mcp

import (
	"context"
	"net"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/test/bufconn"

	"github.com/ashore-mesh/ashore/config"
	"github.com/ashore-mesh/ashore/internal/feed"
	"github.com/ashore-mesh/ashore/internal/testlog"
)

// silent is a server that takes streams and says nothing on them, and a source that calls it, inside of a bubble.
type silent struct {
	source *Source
	out    chan feed.Batch[*config.Object]
	pipe   func(net.Conn) net.Conn // what the source connects by
}

func newSilent(t *testing.T, opts ...grpc.ServerOption) *silent {
	t.Helper()
	s, err := New(Config{Name: "test", Address: "server.test:1", NodeID: "a", Protocol: XDSState, Plaintext: true, AnswerWait: 1000 * time.Hour, Log: testlog.New(t)})
	if err != nil {
		t.Fatal(err)
	}
	l := bufconn.Listen(1 << 20)
	g := grpc.NewServer(append(opts, grpc.UnknownServiceHandler(func(_ any, st grpc.ServerStream) error {
		<-st.Context().Done()
		return st.Context().Err()
	}))...)
	var served sync.WaitGroup
	served.Go(func() { _ = g.Serve(l) }) // ends with Stop
	t.Cleanup(func() { g.Stop(); served.Wait(); s.parts.Wait() })
	out := &silent{source: s, out: make(chan feed.Batch[*config.Object], 100), pipe: func(c net.Conn) net.Conn { return c }}
	s.dial = func(ctx context.Context, _ string) (net.Conn, error) {
		c, err := l.DialContext(ctx)
		if err != nil {
			return nil, err
		}
		return out.pipe(c), nil
	}
	return out
}

// lasts is how long a connection lasts, most at most, and why it ended.
func (s *silent) lasts(t *testing.T, most time.Duration) (time.Duration, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), most)
	defer cancel()
	begin := time.Now()
	err := s.source.call(ctx, s.out)
	return time.Since(begin), err
}

// A server with gRPC's defaults takes how often it is asked whether it lives; one that wants less is asked less.
func TestPingsThatServersTake(t *testing.T) {
	t.Parallel()
	const day = 24 * time.Hour
	for name, c := range map[string]struct {
		opts  []grpc.ServerOption
		calls int // the first connection that stays
	}{
		"default": {nil, 1},
		"strict":  {[]grpc.ServerOption{grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: 10 * time.Minute})}, 2},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				s := newSilent(t, c.opts...)
				for i := 1; i < c.calls; i++ {
					if d, err := s.lasts(t, day); d >= day || !strings.Contains(s.source.outage(err), "more seldom") {
						t.Errorf("connection %d lasts %s and ends with %v: %s", i, d, err, s.source.outage(err))
					} else {
						s.source.lost(t.Context(), s.out, err)
					}
				}
				if d, err := s.lasts(t, day); d < day {
					t.Errorf("connection %d lasts %s and ends with %v", c.calls, d, err)
				}
			})
		})
	}
}

// stuck is a connection on which nothing arrives any more.
type stuck struct {
	net.Conn
	from time.Time
}

func (s *stuck) Write(b []byte) (int, error) {
	if time.Now().Before(s.from) {
		return s.Conn.Write(b)
	}
	return len(b), nil
}

// A server whose machine answers, and which itself does not, is found in bounded time.
func TestServerStuck(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newSilent(t)
		s.pipe = func(c net.Conn) net.Conn { return &stuck{c, time.Now().Add(time.Minute)} }
		if d, err := s.lasts(t, 24*time.Hour); err == nil || d > 8*time.Minute {
			t.Errorf("it is found after %s: %v", d, err)
		}
	})
}

// A server that has differences alone, and says nothing when it is asked for them, is named with that: not with what came of the
// other way, which it does not have.
func TestMuteWithDifferencesAlone(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ lacks, want string }{
		"differences alone":        {"StreamAggregatedResources", "cannot be asked (it answers nothing within 30s (answerWait)): see that it runs, and its log"},
		"state of the world alone": {"DeltaAggregatedResources", "cannot be asked (it answers nothing within 30s (answerWait)): see that it runs, and its log"},
		"neither":                  {"AggregatedResources", "cannot be asked (no such method): see protocol, and that it serves configuration at this address"},
		"both":                     {"nothing", "cannot be asked (it answers nothing within 30s (answerWait)): see that it runs, and its log"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				s := newSilent(t, grpc.StreamInterceptor(func(srv any, st grpc.ServerStream, info *grpc.StreamServerInfo, next grpc.StreamHandler) error {
					if strings.Contains(info.FullMethod, c.lacks) {
						return status.Error(codes.Unimplemented, "no such method")
					}
					return next(srv, st)
				}))
				s.source.cfg.Protocol, s.source.cfg.AnswerWait, s.source.states = XDS, 30*time.Second, false
				ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
				defer cancel()
				done := make(chan error, 1)
				go func() { done <- s.source.Run(ctx, s.out) }()
				if err := <-done; err != nil {
					t.Error(err)
				}
				told := 0
				for len(s.out) > 0 {
					if b := <-s.out; b.Standing == nil || !strings.HasSuffix(b.Standing.Error, c.want) {
						t.Errorf("told %+v, want %q", b.Standing, c.want)
					}
					told++
				}
				if told == 0 {
					t.Error("nothing is told")
				}
			})
		})
	}
}
