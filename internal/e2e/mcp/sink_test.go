package mcp_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	networking "istio.io/api/networking/v1alpha3"

	"github.com/ashore-mesh/ashore/config"
	"github.com/ashore-mesh/ashore/internal/e2e/mcptest"
	"github.com/ashore-mesh/ashore/internal/feed"
	"github.com/ashore-mesh/ashore/internal/testlog"
	"github.com/ashore-mesh/ashore/mcp"
)

const entries = "networking.istio.io/v1/ServiceEntry"

// entryOf is a ServiceEntry for a host; "" is refused.
func entryOf(host string) *networking.ServiceEntry {
	return &networking.ServiceEntry{
		Hosts:      []string{host},
		Ports:      []*networking.ServicePort{{Number: 80, Name: "http", Protocol: "HTTP"}},
		Resolution: networking.ServiceEntry_DNS,
	}
}

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

// ways are the protocols over xDS.
var ways = []string{mcp.XDSDelta, mcp.XDSState}

// Everything that is true of a server of MCP over xDS, in both forms of the protocol.
func TestXDS(t *testing.T) {
	t.Parallel()
	for _, way := range ways {
		t.Run(way, func(t *testing.T) {
			t.Parallel()
			x := &mcptest.XDS{Store: mcptest.NewStore()}
			x.Put(entries, "shop/web", entryOf("web.test"))
			x.Put(entries, "shop/db", entryOf("db.test"))
			at, _ := mcptest.Serve(t, "", x.Register)
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
			x.Put(entries, "shop/web", entryOf("www.test"))
			eventually(t, "the change", func() bool { return s.holds("db", "web") == "db.test www.test" })
			s.mu.Lock()
			if n := s.updates - before; n != 1 {
				t.Errorf("%d updates for one change", n)
			}
			s.mu.Unlock()

			t.Log("a bad object is named in a refusal, its last good version stays, the good one beside it is taken")
			bad := entryOf("")
			x.Put(entries, "shop/web", bad)
			x.Put(entries, "shop/db", entryOf("db2.test"))
			eventually(t, "the good one", func() bool { return s.holds("db", "web") == "db2.test www.test" })
			eventually(t, "a refusal that names it", func() bool {
				return slices.ContainsFunc(x.Nacks(), func(n string) bool { return strings.Contains(n, "ServiceEntry shop/web spec.hosts[0]") })
			})
			if p := s.problems(); len(p) != 1 || !p[0].Stale || p[0].Object != "ServiceEntry shop/web" {
				t.Errorf("problems %v", p)
			}
			x.Put(entries, "shop/web", entryOf("mended.test"))
			eventually(t, "the mended one", func() bool { return s.holds("db", "web") == "db2.test mended.test" && len(s.problems()) == 0 })

			t.Log("what is removed is gone")
			x.Remove(entries, "shop/db")
			eventually(t, "the removal", func() bool { return s.holds("db", "web") == "mended.test" })

			t.Log("a true emptying is believed")
			x.Clear()
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
			x := &mcptest.XDS{Store: mcptest.NewStore()}
			x.Put(entries, "shop/web", entryOf("web.test"))
			x.Put(entries, "shop/db", entryOf("db.test"))
			at, stop := mcptest.Serve(t, "", x.Register)
			s := newSink(t, mcp.Config{Protocol: way, Address: at, Plaintext: true, Emptied: mcp.Believe, EmptyAfter: 3 * time.Second})
			s.inTouch()

			stop()
			eventually(t, "the outage", func() bool { return strings.Contains(s.status().Error, "see that it runs") })
			if got := s.holds("db", "web"); got != "db.test web.test" {
				t.Errorf("holds %q in the outage", got)
			}
			if st := s.status(); st.Since.IsZero() {
				t.Error("nobody says since when")
			}

			empty := &mcptest.XDS{Store: mcptest.NewStore()}
			_, stop = mcptest.Serve(t, at, empty.Register)
			eventually(t, "the doubt", func() bool { return strings.Contains(s.status().Error, "emptyAfter") })
			if got := s.holds("db", "web"); got != "db.test web.test" {
				t.Errorf("holds %q while the server is doubted", got)
			}
			stop()
			x.Remove(entries, "shop/db")
			_, stop = mcptest.Serve(t, at, x.Register)
			eventually(t, "the return", func() bool { return s.holds("db", "web") == "web.test" && s.status().Error == "" })

			stop()
			_, _ = mcptest.Serve(t, at, empty.Register)
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
			x := &mcptest.XDS{Store: mcptest.NewStore(), Cut: 5}
			x.Put(entries, "shop/web", entryOf("web.test"))
			at, stop := mcptest.Serve(t, "", x.Register)
			s := newSink(t, mcp.Config{Protocol: way, Address: at, Plaintext: true})
			eventually(t, "the outage", func() bool { return strings.Contains(s.status().Error, "killed") })
			if st := s.status(); st.Synced || st.Items != 0 {
				t.Errorf("something incomplete was told: %+v", st)
			}
			stop()
			whole := &mcptest.XDS{Store: x.Store}
			_, _ = mcptest.Serve(t, at, whole.Register)
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
			x := &mcptest.XDS{Store: mcptest.NewStore()}
			x.Put(entries, "shop/web", entryOf("web.test"))
			at, stop := mcptest.Serve(t, "", x.Register)
			s := newSink(t, mcp.Config{Protocol: way, Address: at, Plaintext: true})
			s.inTouch()
			stop()
			mad := &mcptest.XDS{Store: x.Store, Nonsense: true}
			_, _ = mcptest.Serve(t, at, mad.Register)
			eventually(t, "a refusal", func() bool {
				return len(mad.Nacks()) > 0 && strings.Contains(mad.Nacks()[0], "cannot be decoded")
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
			x := &mcptest.XDS{Store: mcptest.NewStore(), NoDelta: true}
			x.Put("networking.istio.io/"+version+"/ServiceEntry", "shop/web", entryOf("web.test"))
			at, _ := mcptest.Serve(t, "", x.Register)
			s := newSink(t, mcp.Config{Address: at, Plaintext: true})
			s.inTouch()
			if got := s.holds("web"); got != "web.test" {
				t.Errorf("holds %q", got)
			}
			if len(x.Nodes()) != 1 || x.Nodes()[0] != "sidecar~127.0.0.1~ashored.istio-system~istio-system.svc.cluster.local" {
				t.Errorf("the nodes were %v, want one, on the first request", x.Nodes())
			}
		})
	}
}

// 10,000 objects are there in a few seconds, and one changed object is one object on the wire.
func TestXDSMany(t *testing.T) {
	t.Parallel()
	const many = 10_000
	x := &mcptest.XDS{Store: mcptest.NewStore()}
	for i := range many {
		x.Put(entries, fmt.Sprintf("shop/s%d", i), entryOf(fmt.Sprintf("s%d.test", i)))
	}
	at, _ := mcptest.Serve(t, "", x.Register)
	begin := time.Now()
	s := newSink(t, mcp.Config{Protocol: mcp.XDSDelta, Address: at, Plaintext: true})
	s.inTouch()
	t.Logf("%d objects in %s", many, time.Since(begin))
	if n := s.status().Items; n != many {
		t.Fatalf("%d objects", n)
	}
	x.Put(entries, "shop/s7", entryOf("seven.test"))
	eventually(t, "the change", func() bool { return s.holds("s7") == "seven.test" })
	if n := x.Sent()[entries]; n != many+1 {
		t.Errorf("%d resources were sent, want %d", n, many+1)
	}
}
