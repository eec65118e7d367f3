package mcp_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"

	statuspb "google.golang.org/genproto/googleapis/rpc/status"
	mcpv1 "istio.io/api/mcp/v1alpha1"

	"github.com/ashore-mesh/ashore/internal/e2e/mcptest"
	"github.com/ashore-mesh/ashore/internal/testport"
	"github.com/ashore-mesh/ashore/mcp"
	"github.com/ashore-mesh/ashore/mcp/legacypb"
)

const entryList = "istio/networking/v1alpha3/serviceentries"

// follow tests what is true of a source of the older protocol, whoever calls.
func follow(t *testing.T, l *mcptest.Legacy, s *sink) {
	t.Helper()
	s.inTouch()
	if got := s.holds("db", "web"); got != "db.test web.test" {
		t.Fatalf("holds %q", got)
	}
	l.Put(entryList, "shop/web", entryOf("www.test"))
	eventually(t, "the change", func() bool { return s.holds("db", "web") == "db.test www.test" })
	l.Put(entryList, "shop/web", entryOf(""))
	eventually(t, "a refusal that names it", func() bool {
		return slices.ContainsFunc(l.Nacks(), func(n string) bool { return strings.Contains(n, "ServiceEntry shop/web spec.hosts[0]") })
	})
	if got := s.holds("db", "web"); got != "db.test www.test" || len(s.problems()) != 1 {
		t.Errorf("holds %q, problems %v", got, s.problems())
	}
	l.Put(entryList, "shop/web", entryOf("mended.test"))
	eventually(t, "the mended one", func() bool { return s.holds("db", "web") == "db.test mended.test" && len(s.problems()) == 0 })
	l.Remove(entryList, "shop/db")
	eventually(t, "the removal", func() bool { return s.holds("db", "web") == "mended.test" })
	l.Remove(entryList, "shop/web")
	eventually(t, "the emptying", func() bool { return s.holds("db", "web") == "" })
}

func newLegacySource(differences bool) *mcptest.Legacy {
	l := &mcptest.Legacy{Store: mcptest.NewStore(), Differences: differences}
	l.Put(entryList, "shop/web", entryOf("web.test"))
	l.Put(entryList, "shop/db", entryOf("db.test"))
	return l
}

// We call a source of the older protocol: whole collections and differences.
func TestResourceSource(t *testing.T) {
	t.Parallel()
	for _, differences := range []bool{false, true} {
		t.Run(fmt.Sprint(differences), func(t *testing.T) {
			t.Parallel()
			l := newLegacySource(differences)
			at, _ := mcptest.Serve(t, "", l.Register)
			s := newSink(t, mcp.Config{Protocol: mcp.ResourceSource, Address: at, Plaintext: true})
			follow(t, l, s)
			if slices.ContainsFunc(l.Nodes(), func(id string) bool { return id != "ashored" }) {
				t.Errorf("the sink called itself %v", l.Nodes())
			}
		})
	}
}

// What a source dropped while it was away is gone when it is back, although it calls its first answer a difference; one that
// is killed in the middle leaves everything.
func TestResourceSourceOutage(t *testing.T) {
	t.Parallel()
	l := newLegacySource(true)
	at, stop := mcptest.Serve(t, "", l.Register)
	s := newSink(t, mcp.Config{Protocol: mcp.ResourceSource, Address: at, Plaintext: true, EmptyAfter: 3 * time.Second})
	s.inTouch()
	stop()
	eventually(t, "the outage", func() bool { return s.status().Error != "" })
	l.Remove(entryList, "shop/db")
	half := &mcptest.Legacy{Store: l.Store, Cut: 3}
	_, stop = mcptest.Serve(t, at, half.Register)
	eventually(t, "the killed one", func() bool { return strings.Contains(s.status().Error, "killed") })
	stop()
	if got := s.holds("web"); got != "web.test" {
		t.Errorf("holds %q", got)
	}
	_, _ = mcptest.Serve(t, at, l.Register)
	eventually(t, "the return", func() bool { return s.status().Error == "" && s.holds("db", "web") == "web.test" })
}

// A source that does not know a collection is asked for the others.
func TestResourceSourceUnsupported(t *testing.T) {
	t.Parallel()
	l := newLegacySource(true)
	l.Unsupported = "istio/networking/v1alpha3/workloadgroups"
	at, _ := mcptest.Serve(t, "", l.Register)
	s := newSink(t, mcp.Config{Protocol: mcp.ResourceSource, Address: at, Plaintext: true})
	s.inTouch()
	if got := s.holds("web"); got != "web.test" {
		t.Errorf("holds %q", got)
	}
}

// callSink has a source call our ResourceSink, beginning with the trigger, as Istio's does.
func callSink(ctx context.Context, l *mcptest.Legacy, address string, creds credentials.TransportCredentials) error {
	conn, err := grpc.NewClient("passthrough:///"+address, grpc.WithTransportCredentials(creds))
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }()
	st, err := legacypb.NewResourceSinkClient(conn).EstablishResourceStream(ctx)
	if err != nil {
		return err
	}
	if err := st.Send(&legacypb.Resources{Collection: "$triggerCollection"}); err != nil {
		return err
	}
	if err := l.Talk(st); err != nil {
		return err
	}
	return ctx.Err()
}

// keepCalling calls again and again until the test ends or stop is called.
func keepCalling(t *testing.T, l *mcptest.Legacy, address string, creds credentials.TransportCredentials) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	var calling sync.WaitGroup
	calling.Go(func() {
		for ctx.Err() == nil {
			_ = callSink(ctx, l, address, creds)
			select {
			case <-ctx.Done():
			case <-time.After(50 * time.Millisecond):
			}
		}
	})
	stop = func() { cancel(); calling.Wait() }
	t.Cleanup(stop)
	return stop
}

// A source calls us, goes away, and another one takes its place.
func TestResourceSink(t *testing.T) {
	t.Parallel()
	for _, differences := range []bool{false, true} {
		t.Run(fmt.Sprint(differences), func(t *testing.T) {
			t.Parallel()
			at := testport.Address(t)
			s := newSink(t, mcp.Config{Protocol: mcp.ResourceSink, Address: at, Plaintext: true})
			eventually(t, "nobody is there", func() bool { return strings.Contains(s.status().Error, "no source of configuration is connected") })
			l := newLegacySource(differences)
			stop := keepCalling(t, l, at, insecure.NewCredentials())
			follow(t, l, s)
			l.Put(entryList, "shop/web", entryOf("last.test"))
			eventually(t, "the last word", func() bool { return s.holds("web") == "last.test" })
			stop()
			eventually(t, "the outage", func() bool { return s.status().Error != "" })
			if got := s.holds("web"); got != "last.test" {
				t.Errorf("holds %q", got)
			}
			other := newLegacySource(differences)
			keepCalling(t, other, at, insecure.NewCredentials())
			eventually(t, "the other one", func() bool { return s.status().Error == "" && s.holds("db", "web") == "db.test web.test" })
		})
	}
}

// An address that is taken, as while settings are read anew, is waited for.
func TestResourceSinkAddressTaken(t *testing.T) {
	t.Parallel()
	at, stop := mcptest.Serve(t, testport.Address(t), newLegacySource(true).Register)
	s := newSink(t, mcp.Config{Protocol: mcp.ResourceSink, Address: at, Plaintext: true})
	eventually(t, "the outage", func() bool { return strings.Contains(s.status().Error, "see address") })
	stop()
	keepCalling(t, newLegacySource(true), at, insecure.NewCredentials())
	s.inTouch()
	if got := s.holds("db", "web"); got != "db.test web.test" {
		t.Errorf("holds %q", got)
	}
}

// Who calls has to be one of the peers.
func TestResourceSinkTLS(t *testing.T) {
	t.Parallel()
	ours := newAuthority(t, "ours")
	at := testport.Address(t)
	cfg := mcp.Config{Protocol: mcp.ResourceSink, Address: at, CAFile: ours.file, Peers: []string{"spiffe://cluster.local/ns/istio-system/sa/galley"}}
	cfg.CertFile, cfg.KeyFile = ours.leaf("sink", "sink.test", time.Now().Add(time.Hour))
	s := newSink(t, cfg)
	pool := x509.NewCertPool()
	pool.AddCert(ours.cert)
	creds := func(file, who string) credentials.TransportCredentials {
		c := &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: pool, ServerName: "sink.test"}
		if who != "" {
			cert, key := ours.leaf(file, who, time.Now().Add(time.Hour))
			pair, err := tls.LoadX509KeyPair(cert, key)
			if err != nil {
				t.Fatal(err)
			}
			c.Certificates = []tls.Certificate{pair}
		}
		return credentials.NewTLS(c)
	}
	l := newLegacySource(true)
	for name, who := range map[string]string{"stranger": "spiffe://cluster.local/ns/shop/sa/web", "nobody": ""} {
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		if err := callSink(ctx, l, at, creds(name, who)); err == nil || ctx.Err() != nil {
			t.Errorf("%s: %v", name, err)
		}
		cancel()
	}
	if s.status().Synced {
		t.Fatal("a stranger was believed")
	}
	keepCalling(t, l, at, creds("peer", cfg.Peers[0]))
	s.inTouch()
	if got := s.holds("web"); got != "web.test" {
		t.Errorf("holds %q", got)
	}
}

// A sink of the older protocol that takes from ours: numbers, differences, a refusal, a stale answer.
func TestLegacyReader(t *testing.T) {
	t.Parallel()
	s := newServed(t, mcp.Readers{Anybody: true})
	s.put("web", "web.test")
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	st, err := legacypb.NewResourceSourceClient(dial(t, s.address)).EstablishResourceStream(ctx)
	if err != nil {
		t.Fatal(err)
	}
	say := func(nonce string, refused *statuspb.Status) {
		t.Helper()
		if err := st.Send(&legacypb.RequestResources{SinkNode: &legacypb.SinkNode{Id: "pilot"}, Collection: entryList, ResponseNonce: nonce, Incremental: true, ErrorDetail: refused}); err != nil {
			t.Fatal(err)
		}
	}
	hear := func(want string) *legacypb.Resources {
		t.Helper()
		r, err := st.Recv()
		if err != nil {
			t.Fatal(err)
		}
		got := r.Nonce
		for _, res := range r.Resources {
			got += " +" + res.Metadata.Name
			if res.Metadata.Version == "" || (*mcpv1.Metadata)(res.Metadata).CreateTime == nil {
				t.Errorf("metadata %v", res.Metadata)
			}
		}
		for _, name := range r.RemovedResources {
			got += " -" + name
		}
		if r.Incremental {
			got += " incremental"
		}
		if got != want {
			t.Errorf("told %q, want %q", got, want)
		}
		return r
	}
	say("", nil)
	hear("1 +shop/web")
	say("no such nonce", nil)
	say("1", nil)
	s.put("db", "db.test")
	hear("2 +shop/db incremental")
	s.put("web", "")
	say("2", &statuspb.Status{Code: 3, Message: "I do not like it"})
	hear("3 +shop/db")
	say("3", nil)
	s.put("web", "back.test")
	hear("4 +shop/web incremental")
}
