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
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	statuspb "google.golang.org/genproto/googleapis/rpc/status"
	mcpv1 "istio.io/api/mcp/v1alpha1"

	"github.com/ashore-mesh/ashore/internal/testport"
	"github.com/ashore-mesh/ashore/mcp"
	"github.com/ashore-mesh/ashore/mcp/legacypb"
)

const entryList = "istio/networking/v1alpha3/serviceentries"

// legacySource is a source of the older protocol as Istio's was, defects included: one row of numbers for all collections of
// a stream, by which the first answer of the second collection is a difference already; what a sink claims is not read.
type legacySource struct {
	legacypb.UnimplementedResourceSourceServer
	*store
	differences bool
	unsupported string
	cut         int

	note  sync.Mutex
	nacks []string
	sent  int
	ids   []string
}

type legacyStream interface {
	Send(*legacypb.Resources) error
	Recv() (*legacypb.RequestResources, error)
	Context() context.Context
}

func (l *legacySource) EstablishResourceStream(st grpc.BidiStreamingServer[legacypb.RequestResources, legacypb.Resources]) error {
	return l.talk(st)
}

// talk is one stream, of either service.
func (l *legacySource) talk(st legacyStream) error {
	wake, stop := l.watch()
	defer stop()
	requests := received(st.Context(), st.Recv)
	type watch struct {
		nonce       string
		has         map[string]string
		armed, diff bool
		asked       bool
	}
	watches, nonces := map[string]*watch{}, 0
	send := func(collection string, w *watch) error {
		now := map[string]string{}
		r := &legacypb.Resources{Collection: collection, Incremental: l.differences && w.diff && nonces > 0}
		for _, res := range l.list(collection) {
			now[res.Metadata.Name] = res.Metadata.Version
			if !r.Incremental || w.has[res.Metadata.Name] != res.Metadata.Version {
				r.Resources = append(r.Resources, res)
			}
		}
		for name := range w.has {
			if _, ok := now[name]; !ok && r.Incremental {
				r.RemovedResources = append(r.RemovedResources, name)
			}
		}
		if w.asked && len(r.Resources)+len(r.RemovedResources) == 0 && len(now) == len(w.has) {
			return nil
		}
		nonces++
		if l.cut > 0 && nonces > l.cut {
			return status.Error(codes.Internal, "killed")
		}
		r.Nonce, w.nonce, w.has, w.armed, w.asked = fmt.Sprint(nonces), fmt.Sprint(nonces), now, false, true
		l.note.Lock()
		l.sent += len(r.Resources)
		l.note.Unlock()
		return st.Send(r)
	}
	for {
		select {
		case r, ok := <-requests:
			if !ok {
				return nil
			}
			if r.Collection == "$triggerCollection" {
				continue
			}
			if r.Collection == l.unsupported {
				return status.Errorf(codes.InvalidArgument, "unsupported collection %q", r.Collection)
			}
			w := watches[r.Collection]
			if w == nil {
				w = &watch{}
				watches[r.Collection] = w
			}
			l.note.Lock()
			l.ids = append(l.ids, r.SinkNode.GetId())
			if r.ErrorDetail != nil {
				l.nacks = append(l.nacks, r.ErrorDetail.Message)
			}
			l.note.Unlock()
			w.diff = r.Incremental
			if r.ResponseNonce != w.nonce && r.ResponseNonce != "" {
				continue
			}
			w.armed = true
			if r.ErrorDetail == nil {
				if err := send(r.Collection, w); err != nil {
					return err
				}
			}
		case <-wake:
			for name, w := range watches {
				if !w.armed {
					continue
				}
				if err := send(name, w); err != nil {
					return err
				}
			}
		}
	}
}

func (l *legacySource) register(g *grpc.Server) { legacypb.RegisterResourceSourceServer(g, l) }

// follow tests what is true of a source of the older protocol, whoever calls.
func follow(t *testing.T, l *legacySource, s *sink) {
	t.Helper()
	s.inTouch()
	if got := s.holds("db", "web"); got != "db.test web.test" {
		t.Fatalf("holds %q", got)
	}
	l.put(entryList, "shop/web", entryOf("www.test"))
	eventually(t, "the change", func() bool { return s.holds("db", "web") == "db.test www.test" })
	l.put(entryList, "shop/web", entryOf(""))
	eventually(t, "a refusal that names it", func() bool {
		l.note.Lock()
		defer l.note.Unlock()
		return slices.ContainsFunc(l.nacks, func(n string) bool { return strings.Contains(n, "ServiceEntry shop/web spec.hosts[0]") })
	})
	if got := s.holds("db", "web"); got != "db.test www.test" || len(s.problems()) != 1 {
		t.Errorf("holds %q, problems %v", got, s.problems())
	}
	l.put(entryList, "shop/web", entryOf("mended.test"))
	eventually(t, "the mended one", func() bool { return s.holds("db", "web") == "db.test mended.test" && len(s.problems()) == 0 })
	l.remove(entryList, "shop/db")
	eventually(t, "the removal", func() bool { return s.holds("db", "web") == "mended.test" })
	l.remove(entryList, "shop/web")
	eventually(t, "the emptying", func() bool { return s.holds("db", "web") == "" })
}

func newLegacySource(differences bool) *legacySource {
	l := &legacySource{store: newStore(), differences: differences}
	l.put(entryList, "shop/web", entryOf("web.test"))
	l.put(entryList, "shop/db", entryOf("db.test"))
	return l
}

// We call a source of the older protocol: whole collections and differences.
func TestResourceSource(t *testing.T) {
	t.Parallel()
	for _, differences := range []bool{false, true} {
		t.Run(fmt.Sprint(differences), func(t *testing.T) {
			t.Parallel()
			l := newLegacySource(differences)
			at, _ := serve(t, "", l.register)
			s := newSink(t, mcp.Config{Protocol: mcp.ResourceSource, Address: at, Plaintext: true})
			follow(t, l, s)
			l.note.Lock()
			defer l.note.Unlock()
			if slices.ContainsFunc(l.ids, func(id string) bool { return id != "ashored" }) {
				t.Errorf("the sink called itself %v", l.ids)
			}
		})
	}
}

// What a source dropped while it was away is gone when it is back, although it calls its first answer a difference; one that
// is killed in the middle leaves everything.
func TestResourceSourceOutage(t *testing.T) {
	t.Parallel()
	l := newLegacySource(true)
	at, stop := serve(t, "", l.register)
	s := newSink(t, mcp.Config{Protocol: mcp.ResourceSource, Address: at, Plaintext: true})
	s.inTouch()
	stop()
	eventually(t, "the outage", func() bool { return s.status().Error != "" })
	l.remove(entryList, "shop/db")
	half := &legacySource{store: l.store, cut: 3}
	_, stop = serve(t, at, half.register)
	eventually(t, "the killed one", func() bool { return strings.Contains(s.status().Error, "killed") })
	stop()
	if got := s.holds("web"); got != "web.test" {
		t.Errorf("holds %q", got)
	}
	_, _ = serve(t, at, l.register)
	eventually(t, "the return", func() bool { return s.status().Error == "" && s.holds("db", "web") == "web.test" })
}

// A source that does not know a collection is asked for the others.
func TestResourceSourceUnsupported(t *testing.T) {
	t.Parallel()
	l := newLegacySource(true)
	l.unsupported = "istio/networking/v1alpha3/workloadgroups"
	at, _ := serve(t, "", l.register)
	s := newSink(t, mcp.Config{Protocol: mcp.ResourceSource, Address: at, Plaintext: true})
	s.inTouch()
	if got := s.holds("web"); got != "web.test" {
		t.Errorf("holds %q", got)
	}
}

// callSink has a source call our ResourceSink, beginning with the trigger, as Istio's does.
func (l *legacySource) callSink(ctx context.Context, address string, creds credentials.TransportCredentials) error {
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
	if err := l.talk(st); err != nil {
		return err
	}
	return ctx.Err()
}

// keepCalling calls again and again until the test ends or stop is called.
func (l *legacySource) keepCalling(t *testing.T, address string, creds credentials.TransportCredentials) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	var calling sync.WaitGroup
	calling.Go(func() {
		for ctx.Err() == nil {
			_ = l.callSink(ctx, address, creds)
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
			stop := l.keepCalling(t, at, insecure.NewCredentials())
			follow(t, l, s)
			l.put(entryList, "shop/web", entryOf("last.test"))
			eventually(t, "the last word", func() bool { return s.holds("web") == "last.test" })
			stop()
			eventually(t, "the outage", func() bool { return s.status().Error != "" })
			if got := s.holds("web"); got != "last.test" {
				t.Errorf("holds %q", got)
			}
			other := newLegacySource(differences)
			other.keepCalling(t, at, insecure.NewCredentials())
			eventually(t, "the other one", func() bool { return s.status().Error == "" && s.holds("db", "web") == "db.test web.test" })
		})
	}
}

// An address that is taken, as while settings are read anew, is waited for.
func TestResourceSinkAddressTaken(t *testing.T) {
	t.Parallel()
	at, stop := serve(t, testport.Address(t), newLegacySource(true).register)
	s := newSink(t, mcp.Config{Protocol: mcp.ResourceSink, Address: at, Plaintext: true})
	eventually(t, "the outage", func() bool { return strings.Contains(s.status().Error, "see address") })
	stop()
	newLegacySource(true).keepCalling(t, at, insecure.NewCredentials())
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
		if err := l.callSink(ctx, at, creds(name, who)); err == nil || ctx.Err() != nil {
			t.Errorf("%s: %v", name, err)
		}
		cancel()
	}
	if s.status().Synced {
		t.Fatal("a stranger was believed")
	}
	l.keepCalling(t, at, creds("peer", cfg.Peers[0]))
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
