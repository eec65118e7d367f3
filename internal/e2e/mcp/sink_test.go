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

// entryOf returns a ServiceEntry for a host; with "" it is invalid.
func entryOf(host string) *networking.ServiceEntry {
	return &networking.ServiceEntry{
		Hosts:      []string{host},
		Ports:      []*networking.ServicePort{{Number: 80, Name: "http", Protocol: "HTTP"}},
		Resolution: networking.ServiceEntry_DNS,
	}
}

// sink runs a source and merges what it sends.
type sink struct {
	t       *testing.T
	mu      sync.Mutex
	merger  *feed.Merger[config.Key, *config.Object] // guarded by mu
	updates int                                      // guarded by mu
}

// newSink runs a source until the test ends.
func newSink(t *testing.T, cfg mcp.Config) *sink {
	t.Helper()
	cfg.Name, cfg.NodeID, cfg.Log = "peer", "ashored", testlog.New(t)
	source, err := mcp.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	keyOf := func(o *config.Object) config.Key { return o.Key }
	s := &sink{t: t, merger: feed.NewMerger(feed.Config[config.Key, *config.Object]{KeyOf: keyOf},
		[]feed.SourceConfig{{Name: source.Name()}})}
	ctx, cancel := context.WithCancel(context.Background())
	out := make(chan feed.Batch[*config.Object])
	var running sync.WaitGroup
	running.Go(func() {
		defer close(out)
		if err := source.Run(ctx, out); err != nil {
			t.Errorf("the source ended: %v", err)
		}
	})
	running.Go(func() {
		for b := range out {
			s.mu.Lock()
			s.updates += len(b.Updates)
			s.merger.Apply(b, time.Now())
			s.mu.Unlock()
		}
	})
	t.Cleanup(func() { cancel(); running.Wait() })
	return s
}

// holds lists the hosts of the active ServiceEntries with the given names.
func (s *sink) holds(names ...string) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.merger.Expire(time.Now())
	var out []string
	for _, name := range names {
		key := config.Key{Kind: config.ServiceEntry, Namespace: "shop", Name: name}
		for _, supply := range s.merger.Items(key) {
			out = append(out, supply.Item.Spec.(*networking.ServiceEntry).Hosts[0])
		}
	}
	return strings.Join(out, " ")
}

func (s *sink) status() feed.SourceStatus {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.merger.Status()[0]
}

func (s *sink) problems() []feed.Problem {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.merger.Problems(func(o *config.Object) string { return o.Key.String() })
}

// connected waits for the first complete state.
func (s *sink) connected() {
	s.t.Helper()
	eventually(s.t, "connected", func() bool { st := s.status(); return st.Synced && st.Error == "" })
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

// eachProtocol runs a test with delta discovery and with state of the world.
func eachProtocol(t *testing.T, test func(t *testing.T, x *mcptest.XDS)) {
	t.Helper()
	for name, noDelta := range map[string]bool{"delta": false, "state of the world": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, &mcptest.XDS{Store: mcptest.NewStore(), NoDelta: noDelta})
		})
	}
}

// A source follows a server: changes, rejected objects and removals.
func TestXDS(t *testing.T) {
	t.Parallel()
	eachProtocol(t, func(t *testing.T, x *mcptest.XDS) {
		x.Put(entries, "shop/web", entryOf("web.test"))
		x.Put(entries, "shop/db", entryOf("db.test"))
		at, _ := mcptest.Serve(t, "", x.Register)
		s := newSink(t, mcp.Config{Options: mcp.Options{Address: at, Plaintext: true}})
		s.connected()
		if got := s.holds("db", "web"); got != "db.test web.test" {
			t.Fatalf("active %q", got)
		}
		x.Put(entries, "shop/web", entryOf("www.test"))
		eventually(t, "the change", func() bool { return s.holds("db", "web") == "db.test www.test" })

		x.Put(entries, "shop/web", entryOf(""))
		x.Put(entries, "shop/db", entryOf("db2.test"))
		eventually(t, "the valid object beside an invalid one", func() bool {
			return s.holds("db", "web") == "db2.test www.test"
		})
		eventually(t, "a rejection that names the object", func() bool {
			named := func(n string) bool { return strings.Contains(n, "ServiceEntry shop/web") }
			return slices.ContainsFunc(x.Seen().Nacks, named)
		})
		x.Put(entries, "shop/web", entryOf("fixed.test"))
		eventually(t, "the fixed object", func() bool {
			return s.holds("db", "web") == "db2.test fixed.test" && len(s.problems()) == 0
		})
		x.Remove(entries, "shop/db")
		eventually(t, "the removal", func() bool { return s.holds("db", "web") == "fixed.test" })
	})
}

// A server that is down, or comes back empty, loses no objects.
func TestOutage(t *testing.T) {
	t.Parallel()
	eachProtocol(t, func(t *testing.T, x *mcptest.XDS) {
		x.Put(entries, "shop/web", entryOf("web.test"))
		x.Put(entries, "shop/db", entryOf("db.test"))
		at, stop := mcptest.Serve(t, "", x.Register)
		s := newSink(t, mcp.Config{Options: mcp.Options{Address: at, Plaintext: true}})
		s.connected()

		stop()
		eventually(t, "the outage", func() bool { return strings.Contains(s.status().Error, "check that it runs") })
		if got := s.holds("db", "web"); got != "db.test web.test" {
			t.Errorf("active in the outage: %q", got)
		}
		empty := &mcptest.XDS{Store: mcptest.NewStore(), NoDelta: x.NoDelta}
		_, stop = mcptest.Serve(t, at, empty.Register)
		eventually(t, "retention", func() bool { return s.status().Error == "" && s.status().Retained == 2 })
		if got := s.holds("db", "web"); got != "db.test web.test" {
			t.Errorf("active after the server came back empty: %q", got)
		}
		stop()
		x.Put(entries, "shop/web", entryOf("www.test"))
		_, _ = mcptest.Serve(t, at, x.Register)
		eventually(t, "the return", func() bool {
			return s.holds("db", "web") == "db.test www.test" && s.status().Retained == 0
		})
	})
}

// A server that is killed before it answered for all kinds delivers nothing.
func TestKilledBeforeComplete(t *testing.T) {
	t.Parallel()
	eachProtocol(t, func(t *testing.T, x *mcptest.XDS) {
		x.Cut = 5
		x.Put(entries, "shop/web", entryOf("web.test"))
		at, stop := mcptest.Serve(t, "", x.Register)
		s := newSink(t, mcp.Config{Options: mcp.Options{Address: at, Plaintext: true}})
		eventually(t, "the outage", func() bool { return strings.Contains(s.status().Error, "killed") })
		if st := s.status(); st.Synced || st.Items != 0 {
			t.Errorf("an incomplete state was delivered: %+v", st)
		}
		stop()
		whole := &mcptest.XDS{Store: x.Store, NoDelta: x.NoDelta}
		_, _ = mcptest.Serve(t, at, whole.Register)
		s.connected()
		if got := s.holds("web"); got != "web.test" {
			t.Errorf("active %q", got)
		}
	})
}

// Resources that cannot be decoded are rejected, and former objects stay.
func TestNonsense(t *testing.T) {
	t.Parallel()
	eachProtocol(t, func(t *testing.T, x *mcptest.XDS) {
		x.Put(entries, "shop/web", entryOf("web.test"))
		at, stop := mcptest.Serve(t, "", x.Register)
		s := newSink(t, mcp.Config{Options: mcp.Options{Address: at, Plaintext: true}})
		s.connected()
		stop()
		broken := &mcptest.XDS{Store: x.Store, NoDelta: x.NoDelta, Nonsense: true}
		_, _ = mcptest.Serve(t, at, broken.Register)
		eventually(t, "a rejection", func() bool {
			return len(broken.Seen().Nacks) > 0 && strings.Contains(broken.Seen().Nacks[0], "cannot be decoded")
		})
		eventually(t, "a problem", func() bool { return s.status().Error == "" && len(s.problems()) > 0 })
		if got := s.holds("web"); got != "web.test" {
			t.Errorf("active %q", got)
		}
	})
}

// Servers that only know older versions of a kind are supported.
func TestOlderVersions(t *testing.T) {
	t.Parallel()
	for _, version := range []string{"v1", "v1beta1", "v1alpha3"} {
		t.Run(version, func(t *testing.T) {
			t.Parallel()
			x := &mcptest.XDS{Store: mcptest.NewStore(), NoDelta: true}
			x.Put("networking.istio.io/"+version+"/ServiceEntry", "shop/web", entryOf("web.test"))
			at, _ := mcptest.Serve(t, "", x.Register)
			s := newSink(t, mcp.Config{Options: mcp.Options{Address: at, Plaintext: true}})
			s.connected()
			if got := s.holds("web"); got != "web.test" {
				t.Errorf("active %q", got)
			}
			want := "[sidecar~127.0.0.1~ashored.istio-system~istio-system.svc.cluster.local]"
			if got := fmt.Sprint(x.Seen().Nodes); got != want {
				t.Errorf("nodes %s, want %s, on the first request only", got, want)
			}
		})
	}
}

// With delta discovery, one changed object of 10,000 is one object on the wire and in the merger.
func TestXDSMany(t *testing.T) {
	t.Parallel()
	const many = 10_000
	x := &mcptest.XDS{Store: mcptest.NewStore()}
	for i := range many {
		x.Put(entries, fmt.Sprintf("shop/s%d", i), entryOf(fmt.Sprintf("s%d.test", i)))
	}
	at, _ := mcptest.Serve(t, "", x.Register)
	begin := time.Now()
	s := newSink(t, mcp.Config{Options: mcp.Options{Address: at, Plaintext: true}})
	s.connected()
	t.Logf("%d objects in %s", many, time.Since(begin))
	if n := s.status().Items; n != many {
		t.Fatalf("%d objects, want %d", n, many)
	}
	x.Put(entries, "shop/s7", entryOf("seven.test"))
	eventually(t, "the change", func() bool { return s.holds("s7") == "seven.test" })
	s.mu.Lock()
	defer s.mu.Unlock()
	if sent := x.Seen().Sent[entries]; sent != many+1 || s.updates != many+1 {
		t.Errorf("%d resources were sent and %d updates merged, want %d", sent, s.updates, many+1)
	}
}
