package mcp

import (
	"context"
	"io"
	"net"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"github.com/ashore-mesh/ashore/config"
	"github.com/ashore-mesh/ashore/internal/feed"
	"github.com/ashore-mesh/ashore/mcp/legacypb"
)

// galley is a caller of a sink: it answers what it is asked for first with one Gateway.
type galley struct {
	grpc.ServerStream
	ctx     context.Context
	answers chan []byte
}

func (g *galley) Context() context.Context { return g.ctx }

func (g *galley) SendMsg(m any) error {
	r := m.(*legacypb.RequestResources)
	if r.ResponseNonce != "" {
		return nil
	}
	answer := &legacypb.Resources{Collection: r.Collection, Nonce: "1"}
	answer.ProtoReflect().SetUnknown(protowire.AppendBytes(protowire.AppendTag(nil, fieldResources, protowire.BytesType), gateway("s/a", "1", "a.test").raw))
	raw, err := proto.Marshal(answer)
	if err != nil {
		return err
	}
	g.answers <- raw
	return nil
}

func (g *galley) RecvMsg(m any) error {
	select {
	case raw := <-g.answers:
		m.(*frame).raw = raw
		return nil
	case <-g.ctx.Done():
		return io.EOF
	}
}

// sinking is a sink that callers of a test call.
type sinking struct {
	t       *testing.T
	source  *Source
	batches chan feed.Batch[*config.Object]
}

func newSinking(t *testing.T) *sinking {
	t.Helper()
	s, err := New(Config{Name: "test", Protocol: ResourceSink, Plaintext: true, Address: "127.0.0.1:9901", Collections: []string{gatewayList}})
	if err != nil {
		t.Fatal(err)
	}
	out := make(chan feed.Batch[*config.Object], 1000)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { err := s.receive(ctx, out, nil); s.parts.Wait(); done <- err }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	return &sinking{t, s, out}
}

// call has somebody call until stop; ended tells how it was sent away.
func (s *sinking) call(host string) (ended <-chan error, stop context.CancelFunc) {
	ctx, stop := context.WithCancel(peer.NewContext(s.t.Context(), &peer.Peer{Addr: &net.TCPAddr{IP: net.ParseIP(host), Port: 4000}}))
	out := make(chan error, 1)
	go func() {
		out <- s.source.called(nil, &galley{ctx: ctx, answers: make(chan []byte, 10)})
		stop()
	}()
	synctest.Wait()
	return out, stop
}

// stands is how the source said to stand since the last call, one after the other.
func (s *sinking) stands() (out []string) {
	synctest.Wait()
	for {
		select {
		case b := <-s.batches:
			if b.Standing != nil {
				out = append(out, b.Standing.Error)
			}
			continue
		default:
		}
		return out
	}
}

// Two callers that take one another's place again and again are both named, once, until one of them stays away; who was sent
// away hears by whom. One whose connection died takes its own place without a word.
func TestSinkRivals(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newSinking(t)
		check := func(what string, want ...string) {
			t.Helper()
			got := s.stands()
			ok := len(got) == len(want)
			for i := 0; ok && i < len(want); i++ {
				ok = strings.Contains(got[i], want[i]) && (want[i] == "") == (got[i] == "")
			}
			if !ok {
				t.Errorf("%s: it stands as %q, want %q", what, got, want)
			}
		}
		first, _ := s.call("10.0.0.1")
		check("a caller", "nobody has called yet", "")
		second, _ := s.call("10.0.0.2")
		check("another one")
		if err := <-first; status.Code(err) != codes.Unavailable || !strings.Contains(err.Error(), "another caller took its place: 10.0.0.2") {
			t.Errorf("the first one is sent away with %v", err)
		}
		first, _ = s.call("10.0.0.1")
		check("the first one again")
		<-second
		second, _ = s.call("10.0.0.2")
		check("rivals", "callers of 127.0.0.1:9901 take one another's place, the last two are 10.0.0.1 and 10.0.0.2")
		<-first
		third, stop := s.call("10.0.0.1")
		check("still rivals")
		<-second
		time.Sleep(contest - time.Second)
		check("a while later")
		time.Sleep(2 * time.Second)
		check("one alone", "")
		stop()
		<-third
		check("nobody", "no source of configuration is connected to 127.0.0.1:9901")
	})
}

// One that calls again and again while its connection counts still is not its own rival: it is told of as what it is, after all else
// that is in doubt, and until it stays.
func TestSinkReturns(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newSinking(t)
		last := func() string {
			t.Helper()
			if got := s.stands(); len(got) > 0 {
				return got[len(got)-1]
			}
			return "as before"
		}
		for range 3 {
			s.call("10.0.0.1")
		}
		if got := last(); got != "" {
			t.Errorf("it came back twice: it stands as %q", got)
		}
		s.call("10.0.0.1")
		if got := last(); !strings.HasPrefix(got, "10.0.0.1 calls 127.0.0.1:9901 again and again") || strings.Contains(got, "another") {
			t.Errorf("it came back three times: it stands as %q", got)
		}
		time.Sleep(contest + time.Second)
		if got := last(); got != "" {
			t.Errorf("it stayed: it stands as %q", got)
		}
	})
}

// What else is in doubt is told before that one caller comes back again and again.
func TestReturnsDoubts(t *testing.T) {
	t.Parallel()
	s, err := New(Config{Name: "test", Protocol: ResourceSink, Plaintext: true, Address: "127.0.0.1:9901", Collections: []string{gatewayList}})
	if err != nil {
		t.Fatal(err)
	}
	talk := &talk{Source: s}
	for range contests {
		s.replaced("a", "a", start)
	}
	if got := talk.doubts(start); !strings.HasPrefix(got, "a calls ") {
		t.Errorf("nothing else: %q", got)
	}
	talk.believe = start.Add(time.Minute)
	if got := talk.doubts(start); !strings.Contains(got, "holds no object") {
		t.Errorf("it holds nothing: %q", got)
	}
	talk.believe = time.Time{}
	for range contests {
		s.replaced("a", "b", start)
	}
	if got := talk.doubts(start); !strings.Contains(got, "the last two are a and b") {
		t.Errorf("rivals: %q", got)
	}
}

// Callers count as rivals when that happens often within a while.
func TestRivals(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		at   []time.Duration
		now  time.Duration
		want time.Duration // until when; zero: they are none
	}{
		"never":   {nil, 0, 0},
		"seldom":  {[]time.Duration{0, time.Second}, time.Second, 0},
		"often":   {[]time.Duration{0, time.Second, 2 * time.Second}, 3 * time.Second, contest + 2*time.Second},
		"slowly":  {[]time.Duration{0, 3 * time.Minute, 6 * time.Minute}, 6 * time.Minute, 0},
		"at last": {[]time.Duration{0, 3 * time.Minute, 6 * time.Minute, 7 * time.Minute}, 7 * time.Minute, 12 * time.Minute},
		"over":    {[]time.Duration{0, time.Second, 2 * time.Second}, contest + 2*time.Second, 0},
	} {
		var r rivals
		for _, at := range tc.at {
			r.note("a", "b", start.Add(at))
		}
		want := time.Time{}
		if tc.want > 0 {
			want = start.Add(tc.want)
		}
		if got := r.over(start.Add(tc.now)); !got.Equal(want) || (r.doubts("x", start.Add(tc.now)) != "") != !want.IsZero() {
			t.Errorf("%s: until %s, want %s", name, got, want)
		}
	}
}
