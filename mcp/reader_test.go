package mcp

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"

	"github.com/ashore-mesh/ashore/internal/audit"
	"github.com/ashore-mesh/ashore/internal/spiffe"
	"github.com/ashore-mesh/ashore/mcp/legacypb"
	"github.com/ashore-mesh/ashore/push"
)

// mute is a stream on which nothing is said.
type mute struct {
	grpc.ServerStream
	ctx context.Context
}

func (m mute) Context() context.Context { return m.ctx }
func (m mute) RecvMsg(any) error        { return io.EOF }

// Before everything is known nobody is told anything: a sink would take that for an empty mesh.
func TestServerNotReady(t *testing.T) {
	t.Parallel()
	c := NewCatalog(CatalogConfig{Readers: Readers{Anybody: true}})
	s, err := NewServer(ServerConfig{Catalog: c, Identify: func(context.Context) (id spiffe.ID, until time.Time, err error) { return id, until, nil }})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.establish(nil, mute{ctx: t.Context()}); status.Code(err) != codes.Unavailable {
		t.Errorf("before the first context: %v, want Unavailable", err)
	}
	c.Publish(push.Objects{})
	if err := s.establish(nil, mute{ctx: t.Context()}); err != nil {
		t.Errorf("afterwards: %v", err)
	}
}

// deaf is a stream of a sink that asks and then reads nothing.
type deaf struct {
	grpc.ServerStream
	ctx  context.Context
	asks chan string // collections
	sent chan any    // what waits to be read
}

func (d *deaf) Context() context.Context { return d.ctx }

func (d *deaf) RecvMsg(into any) error {
	select {
	case into.(*legacypb.RequestResources).Collection = <-d.asks:
		return nil
	case <-d.ctx.Done():
		return d.ctx.Err()
	}
}

func (d *deaf) SendMsg(m any) error {
	select {
	case d.sent <- m:
		return nil
	case <-d.ctx.Done():
		return d.ctx.Err()
	}
}

// identities say who is at the other end of streams, and until when.
type identities struct {
	mu    sync.Mutex
	until time.Time
	wrong error
	may   spiffe.ID
}

func (i *identities) identify(context.Context) (spiffe.ID, time.Time, error) {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.may, i.until, i.wrong
}

// A reader who may not read any more is cut off at once, also while an answer waits for him to read.
func TestReaderWhoDoesNotReadIsCut(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		end  func(*Server, *identities, func())
		want codes.Code
	}{
		"revoked": {func(s *Server, i *identities, _ func()) {
			i.mu.Lock()
			i.wrong = errors.New("revoked")
			i.mu.Unlock()
			s.Recheck()
		}, codes.Unauthenticated},
		"expired": {func(s *Server, i *identities, _ func()) {
			i.mu.Lock()
			i.until = time.Now().Add(time.Second)
			i.mu.Unlock()
			s.Recheck()
			time.Sleep(time.Second)
		}, codes.Unauthenticated},
		"the server ends": {func(_ *Server, _ *identities, stop func()) { stop() }, codes.Unavailable},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				c := NewCatalog(CatalogConfig{Readers: Readers{Anybody: true}})
				c.Publish(push.Objects{})
				i := &identities{}
				s, err := NewServer(ServerConfig{Catalog: c, Identify: i.identify})
				if err != nil {
					t.Fatal(err)
				}
				running, stop := context.WithCancel(t.Context())
				defer stop()
				go func() { _ = s.Run(running) }()
				ctx, end := context.WithCancel(t.Context())
				d := &deaf{ctx: ctx, asks: make(chan string), sent: make(chan any)}
				done := make(chan error, 1)
				go func() {
					err := s.establish(nil, d)
					end() // as gRPC does
					done <- err
				}()
				d.asks <- gatewayList
				synctest.Wait()
				tc.end(s, i, stop)
				synctest.Wait()
				select {
				case err := <-done:
					if status.Code(err) != tc.want {
						t.Errorf("ended with %v, want %v", err, tc.want)
					}
				case <-d.sent:
					t.Error("an answer was sent")
				default:
					t.Error("the stream goes on")
					end()
				}
				synctest.Wait()
				select {
				case <-d.sent:
					t.Error("an answer is sent after the end")
				default:
				}
			})
		})
	}
}

// One reader takes a quarter of the streams, and is told and recorded as refused beyond that, not as one who reads.
func TestReadersShare(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := NewCatalog(CatalogConfig{Readers: Readers{Anybody: true}})
		c.Publish(push.Objects{})
		i := &identities{may: spiffe.ID{TrustDomain: "td", Namespace: "a", ServiceAccount: "b"}}
		var mu sync.Mutex
		var events []string
		s, err := NewServer(ServerConfig{Catalog: c, Identify: i.identify, Streams: 8, Audit: func(e audit.Event) {
			mu.Lock()
			defer mu.Unlock()
			events = append(events, fmt.Sprintf("%s %s", e.Actor, e.Outcome))
		}})
		if err != nil {
			t.Fatal(err)
		}
		ctx, end := context.WithCancel(t.Context())
		from := func(host string) context.Context {
			return peer.NewContext(ctx, &peer.Peer{Addr: &net.TCPAddr{IP: net.ParseIP(host), Port: 1}})
		}
		ended := make(chan error, 20)
		enter := func(host string) {
			go func() {
				ended <- s.establish(nil, &deaf{ctx: from(host), asks: make(chan string), sent: make(chan any)})
			}()
			synctest.Wait()
		}
		refused := func(what, want string) {
			t.Helper()
			select {
			case err := <-ended:
				if status.Code(err) != codes.ResourceExhausted || !strings.Contains(err.Error(), want) {
					t.Errorf("%s: %v, want %q in it", what, err, want)
				}
			default:
				t.Errorf("%s is served", what)
			}
		}
		enter("10.0.0.1")
		enter("10.0.0.2")
		enter("10.0.0.3")
		refused("a third one", "2 streams of spiffe://td/ns/a/sa/b are served")
		mu.Lock()
		if last := events[len(events)-1]; len(events) != 3 || last != "spiffe://td/ns/a/sa/b "+audit.Refused {
			t.Errorf("recorded is %q", events)
		}
		mu.Unlock()
		i.mu.Lock()
		i.may = spiffe.ID{} // others, who prove nothing: by where they are
		i.mu.Unlock()
		for _, host := range []string{"10.0.0.4", "10.0.0.4", "10.0.0.5", "10.0.0.5", "10.0.0.6", "10.0.0.6"} {
			enter(host)
		}
		if len(ended) != 0 {
			t.Errorf("%d of others were turned away", len(ended))
		}
		enter("10.0.0.7")
		refused("one more than all", "8 streams are served")
		end()
		for range 8 {
			<-ended
		}
		enter("10.0.0.7")
		if err := <-ended; status.Code(err) == codes.ResourceExhausted {
			t.Errorf("when all are gone: %v", err)
		}
	})
}

// Who is not believed is told what may be wrong with his certificate, and the audit log says who and why: at the beginning as far
// as he shows it, and later as he had proven it.
func TestReaderNotBelieved(t *testing.T) {
	t.Parallel()
	for name, later := range map[string]bool{"at the beginning": false, "later": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				c := NewCatalog(CatalogConfig{Readers: Readers{Anybody: true}})
				c.Publish(push.Objects{})
				wrong := errors.New("the certificate 1f that says to be of spiffe://td/ns/a/sa/b: revoked: for a test")
				i := &identities{may: spiffe.ID{TrustDomain: "td", Namespace: "a", ServiceAccount: "b"}}
				want := []string{"spiffe://td/ns/a/sa/b ok ", "spiffe://td/ns/a/sa/b refused " + wrong.Error()}
				if !later {
					i.may, i.wrong, want = spiffe.ID{}, wrong, []string{"10.0.0.1 refused " + wrong.Error()}
				}
				var mu sync.Mutex
				var events []string
				s, err := NewServer(ServerConfig{Catalog: c, Identify: i.identify, Audit: func(e audit.Event) {
					mu.Lock()
					defer mu.Unlock()
					events = append(events, fmt.Sprintf("%s %s %s", e.Actor, e.Outcome, e.Reason))
				}})
				if err != nil {
					t.Fatal(err)
				}
				ctx, end := context.WithCancel(peer.NewContext(t.Context(), &peer.Peer{Addr: &net.TCPAddr{IP: net.ParseIP("10.0.0.1"), Port: 1}}))
				defer end()
				done := make(chan error, 1)
				go func() { done <- s.establish(nil, &deaf{ctx: ctx, asks: make(chan string), sent: make(chan any)}) }()
				synctest.Wait()
				i.mu.Lock()
				i.wrong = wrong
				i.mu.Unlock()
				s.Recheck()
				if err := <-done; status.Code(err) != codes.Unauthenticated || !strings.Contains(err.Error(), "the client certificate is missing, out of date, revoked or not of this mesh") {
					t.Errorf("the reader is told %v", err)
				}
				mu.Lock()
				defer mu.Unlock()
				if !slices.Equal(events, want) {
					t.Errorf("recorded is %q, want %q", events, want)
				}
			})
		})
	}
}
