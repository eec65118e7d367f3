package mcp_test

import (
	"context"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc"
	mcpv1 "istio.io/api/mcp/v1alpha1"
	networking "istio.io/api/networking/v1alpha3"

	"github.com/ashore-mesh/ashore/config"
	"github.com/ashore-mesh/ashore/internal/feed"
	"github.com/ashore-mesh/ashore/internal/testlog"
	"github.com/ashore-mesh/ashore/mcp"
)

const entries = "networking.istio.io/v1/ServiceEntry"

// sink runs a source of ours and keeps what it says, as the assembler does.
type sink struct {
	t *testing.T
	*mcp.Source
	mu       sync.Mutex
	merged   *feed.Merger[config.Key, *config.Object]
	batches  int
	updates  int
	fulls    int
	standing []feed.Standing
}

// newSink runs a source until the test ends.
func newSink(t *testing.T, cfg mcp.Config) *sink {
	t.Helper()
	cfg.Name, cfg.NodeID, cfg.Log = "peer", "ashored", testlog.New(t)
	source, err := mcp.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	s := &sink{t: t, Source: source, merged: feed.NewMerger([]string{source.Name()}, func(o *config.Object) config.Key { return o.Key })}
	ctx, cancel := context.WithCancel(context.Background())
	out, done := make(chan feed.Batch[*config.Object]), make(chan error, 1)
	go func() { done <- source.Run(ctx, out); close(out) }()
	var taken sync.WaitGroup
	taken.Go(func() {
		for b := range out {
			s.take(b)
		}
	})
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("the source ended: %v", err)
		}
		taken.Wait()
	})
	return s
}

func (s *sink) take(b feed.Batch[*config.Object]) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if b.Standing != nil {
		s.standing = append(s.standing, *b.Standing)
	}
	s.batches++
	s.updates += len(b.Updates)
	if b.Full {
		s.fulls++
	}
	s.merged.Apply(b, time.Now())
}

// holds shows what counts: the hosts of the ServiceEntries, sorted.
func (s *sink) holds(names ...string) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	var out []string
	for _, name := range names {
		for _, o := range s.merged.Items(config.Key{Kind: config.ServiceEntry, Namespace: "shop", Name: name}) {
			out = append(out, o.Spec.(*networking.ServiceEntry).Hosts[0])
		}
	}
	return strings.Join(out, " ")
}

func (s *sink) status() feed.SourceStatus {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.merged.Sources()[0]
}

func (s *sink) problems() []feed.Problem {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.merged.Problems(nil)
}

// eventually waits for a condition.
func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(30 * time.Second); !ok(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("%s: it never came", what)
		}
	}
}

// inTouch waits until the first complete state is there.
func (s *sink) inTouch() {
	s.t.Helper()
	eventually(s.t, "in touch", func() bool { st := s.status(); return st.Synced && st.Error == "" && len(s.standings()) > 0 })
}

func (s *sink) standings() []feed.Standing {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.standing)
}

// host is this package's part of the loopback network.
const host = "127.0.71.1"

// serve serves on an address until stop is called or the test ends; "" is any port.
func serve(t *testing.T, address string, register func(*grpc.Server), opts ...grpc.ServerOption) (at string, stop func()) {
	t.Helper()
	if address == "" {
		address = net.JoinHostPort(host, "0")
	}
	var l net.Listener
	eventually(t, "listen on "+address, func() (ok bool) {
		var err error
		l, err = net.Listen("tcp", address)
		return err == nil
	})
	g := grpc.NewServer(opts...)
	register(g)
	done := make(chan struct{})
	go func() { defer close(done); _ = g.Serve(l) }()
	var once sync.Once
	stop = func() { once.Do(func() { g.Stop(); <-done }) }
	t.Cleanup(stop)
	return l.Addr().String(), stop
}

func (x *xdsServer) register(g *grpc.Server) {
	discoveryv3.RegisterAggregatedDiscoveryServiceServer(g, x)
}

// ways are the protocols over xDS.
var ways = []string{mcp.XDSDelta, mcp.XDSState}

// Everything that is true of a server of MCP over xDS, in both forms of the protocol.
func TestXDS(t *testing.T) {
	t.Parallel()
	for _, way := range ways {
		t.Run(way, func(t *testing.T) {
			t.Parallel()
			x := &xdsServer{store: newStore()}
			x.put(entries, "shop/web", entryOf("web.test"))
			x.put(entries, "shop/db", entryOf("db.test"))
			at, _ := serve(t, "", x.register)
			s := newSink(t, mcp.Config{Protocol: way, Address: at, Plaintext: true})
			s.inTouch()
			if got := s.holds("db", "web"); got != "db.test web.test" {
				t.Fatalf("holds %q", got)
			}
			if s.fulls != 1 {
				t.Errorf("%d full batches, want 1", s.fulls)
			}

			t.Log("one changed object costs one object")
			s.mu.Lock()
			before := s.updates
			s.mu.Unlock()
			x.put(entries, "shop/web", entryOf("www.test"))
			eventually(t, "the change", func() bool { return s.holds("db", "web") == "db.test www.test" })
			s.mu.Lock()
			if n := s.updates - before; n != 1 {
				t.Errorf("%d updates for one change", n)
			}
			s.mu.Unlock()

			t.Log("a bad object is named in a refusal, its last good version stays, the good one beside it is taken")
			x.change(func(held map[string]map[string]*mcpv1.Resource) {})
			bad := entryOf("")
			x.put(entries, "shop/web", bad)
			x.put(entries, "shop/db", entryOf("db2.test"))
			eventually(t, "the good one", func() bool { return s.holds("db", "web") == "db2.test www.test" })
			eventually(t, "a refusal that names it", func() bool {
				x.note.Lock()
				defer x.note.Unlock()
				return slices.ContainsFunc(x.nacks, func(n string) bool { return strings.Contains(n, "ServiceEntry shop/web spec.hosts[0]") })
			})
			if p := s.problems(); len(p) != 1 || !p[0].Stale || p[0].Object != "ServiceEntry shop/web" {
				t.Errorf("problems %v", p)
			}
			x.put(entries, "shop/web", entryOf("mended.test"))
			eventually(t, "the mended one", func() bool { return s.holds("db", "web") == "db2.test mended.test" && len(s.problems()) == 0 })

			t.Log("what is removed is gone")
			x.remove(entries, "shop/db")
			eventually(t, "the removal", func() bool { return s.holds("db", "web") == "mended.test" })

			t.Log("a true emptying is believed")
			x.clear()
			eventually(t, "the emptying", func() bool { return s.holds("db", "web") == "" })
			if e := s.status().Error; e != "" {
				t.Errorf("not in touch: %s", e)
			}
		})
	}
}

// A server that goes away leaves what it said, and says since when; one that comes back empty is not believed at once; one
// that comes back with less is.
func TestXDSOutage(t *testing.T) {
	t.Parallel()
	for _, way := range ways {
		t.Run(way, func(t *testing.T) {
			t.Parallel()
			x := &xdsServer{store: newStore()}
			x.put(entries, "shop/web", entryOf("web.test"))
			x.put(entries, "shop/db", entryOf("db.test"))
			at, stop := serve(t, "", x.register)
			s := newSink(t, mcp.Config{Protocol: way, Address: at, Plaintext: true, EmptyAfter: 3 * time.Second})
			s.inTouch()

			stop()
			eventually(t, "the outage", func() bool { return strings.Contains(s.status().Error, "see that it runs") })
			if got := s.holds("db", "web"); got != "db.test web.test" {
				t.Errorf("holds %q in the outage", got)
			}
			if st := s.status(); st.Since.IsZero() {
				t.Error("nobody says since when")
			}

			empty := &xdsServer{store: newStore()}
			_, stop = serve(t, at, empty.register)
			eventually(t, "the doubt", func() bool { return strings.Contains(s.status().Error, "emptyAfter") })
			if got := s.holds("db", "web"); got != "db.test web.test" {
				t.Errorf("holds %q while the server is doubted", got)
			}
			stop()
			x.remove(entries, "shop/db")
			_, stop = serve(t, at, x.register)
			eventually(t, "the return", func() bool { return s.holds("db", "web") == "web.test" && s.status().Error == "" })

			stop()
			_, _ = serve(t, at, empty.register)
			eventually(t, "the end of the doubt", func() bool { return s.holds("db", "web") == "" && s.status().Error == "" })
		})
	}
}

// A server that is killed in the middle of its first answers says nothing complete, and nothing is told.
func TestXDSKilled(t *testing.T) {
	t.Parallel()
	for _, way := range ways {
		t.Run(way, func(t *testing.T) {
			t.Parallel()
			x := &xdsServer{store: newStore(), cut: 5}
			x.put(entries, "shop/web", entryOf("web.test"))
			at, stop := serve(t, "", x.register)
			s := newSink(t, mcp.Config{Protocol: way, Address: at, Plaintext: true})
			eventually(t, "the outage", func() bool { return strings.Contains(s.status().Error, "killed") })
			if st := s.status(); st.Synced || st.Items != 0 {
				t.Errorf("something incomplete was told: %+v", st)
			}
			stop()
			whole := &xdsServer{store: x.store}
			_, _ = serve(t, at, whole.register)
			s.inTouch()
			if got := s.holds("web"); got != "web.test" {
				t.Errorf("holds %q", got)
			}
		})
	}
}

// A server that answers nonsense is refused, and what it said before stays.
func TestXDSNonsense(t *testing.T) {
	t.Parallel()
	for _, way := range ways {
		t.Run(way, func(t *testing.T) {
			t.Parallel()
			x := &xdsServer{store: newStore()}
			x.put(entries, "shop/web", entryOf("web.test"))
			at, stop := serve(t, "", x.register)
			s := newSink(t, mcp.Config{Protocol: way, Address: at, Plaintext: true})
			s.inTouch()
			stop()
			mad := &xdsServer{store: x.store, nonsense: true}
			_, _ = serve(t, at, mad.register)
			eventually(t, "a refusal", func() bool {
				mad.note.Lock()
				defer mad.note.Unlock()
				return len(mad.nacks) > 0 && strings.Contains(mad.nacks[0], "cannot be decoded")
			})
			if got := s.holds("web"); got != "web.test" {
				t.Errorf("holds %q", got)
			}
			if len(s.problems()) == 0 {
				t.Error("nobody is told")
			}
		})
	}
}

// A server without differences is asked for state of the world, and an older one under the names that it knows.
func TestXDSOldServers(t *testing.T) {
	t.Parallel()
	for _, version := range []string{"v1", "v1beta1", "v1alpha3"} {
		t.Run(version, func(t *testing.T) {
			t.Parallel()
			x := &xdsServer{store: newStore(), noDelta: true}
			x.put("networking.istio.io/"+version+"/ServiceEntry", "shop/web", entryOf("web.test"))
			at, _ := serve(t, "", x.register)
			s := newSink(t, mcp.Config{Address: at, Plaintext: true})
			s.inTouch()
			if got := s.holds("web"); got != "web.test" {
				t.Errorf("holds %q", got)
			}
			x.note.Lock()
			defer x.note.Unlock()
			if len(x.nodes) != 1 || x.nodes[0] != "sidecar~127.0.0.1~ashored.istio-system~istio-system.svc.cluster.local" {
				t.Errorf("the nodes were %v, want one, on the first request", x.nodes)
			}
		})
	}
}

// 10,000 objects are there in a few seconds, and one changed object is one object on the wire.
func TestXDSMany(t *testing.T) {
	t.Parallel()
	const many = 10_000
	x := &xdsServer{store: newStore()}
	x.change(func(held map[string]map[string]*mcpv1.Resource) {})
	for i := range many {
		x.put(entries, fmt.Sprintf("shop/s%d", i), entryOf(fmt.Sprintf("s%d.test", i)))
	}
	at, _ := serve(t, "", x.register)
	begin := time.Now()
	s := newSink(t, mcp.Config{Protocol: mcp.XDSDelta, Address: at, Plaintext: true})
	s.inTouch()
	t.Logf("%d objects in %s", many, time.Since(begin))
	if n := s.status().Items; n != many {
		t.Fatalf("%d objects", n)
	}
	x.put(entries, "shop/s7", entryOf("seven.test"))
	eventually(t, "the change", func() bool { return s.holds("s7") == "seven.test" })
	x.note.Lock()
	defer x.note.Unlock()
	if n := x.sent[entries]; n != many+1 {
		t.Errorf("%d resources were sent, want %d", n, many+1)
	}
}
