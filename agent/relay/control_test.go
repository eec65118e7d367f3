package relay

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
	meshv1alpha1 "istio.io/api/mesh/v1alpha1"
	networkingv1 "istio.io/api/networking/v1alpha3"
)

// fakePlane answers the types of the control stream with what it is given, and keeps the requests.
type fakePlane struct {
	discoveryv3.UnimplementedAggregatedDiscoveryServiceServer
	address string
	refuse  error // the answer to every stream; nil: it is served

	mu        sync.Mutex
	resources map[string]proto.Message // by type
	requests  []string                 // "stream type: what", in order
	streams   int
	wake      []chan string // types that changed, by stream
}

func startFakePlane(t *testing.T, refuse error) *fakePlane {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &fakePlane{address: l.Addr().String(), refuse: refuse, resources: map[string]proto.Message{}}
	g := grpc.NewServer()
	discoveryv3.RegisterAggregatedDiscoveryServiceServer(g, p)
	done := make(chan error, 1)
	go func() { done <- g.Serve(l) }()
	t.Cleanup(func() {
		g.Stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	return p
}

// set changes what there is of a type.
func (p *fakePlane) set(typeURL string, m proto.Message) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.resources[typeURL] = m
	for _, w := range p.wake {
		w <- typeURL
	}
}

// received returns the requests that contain a text.
func (p *fakePlane) received(text string) []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(p.requests), func(s string) bool { return !strings.Contains(s, text) })
}

func (p *fakePlane) note(n int, r *discoveryv3.DeltaDiscoveryRequest) {
	what := "asks"
	switch {
	case r.ErrorDetail != nil:
		what = "rejects: " + r.ErrorDetail.Message
	case r.ResponseNonce != "":
		what = "acknowledges"
	case len(r.InitialResourceVersions) > 0:
		what = fmt.Sprint("claims ", r.InitialResourceVersions)
	}
	p.requests = append(p.requests, fmt.Sprintf("%d %s: %s", n, shortType(r.TypeUrl), what))
}

func (p *fakePlane) DeltaAggregatedResources(g grpc.BidiStreamingServer[discoveryv3.DeltaDiscoveryRequest,
	discoveryv3.DeltaDiscoveryResponse]) error {
	if p.refuse != nil {
		return p.refuse
	}
	wake := make(chan string, 100)
	p.mu.Lock()
	p.streams++
	n := p.streams
	p.wake = append(p.wake, wake)
	p.mu.Unlock()
	requests := make(chan *discoveryv3.DeltaDiscoveryRequest)
	go func() {
		defer close(requests)
		for {
			r, err := g.Recv()
			if err != nil {
				return
			}
			requests <- r
		}
	}()
	for nonce := 0; ; nonce++ {
		var typeURL string
		select {
		case r, ok := <-requests:
			if !ok {
				return nil
			}
			p.mu.Lock()
			p.note(n, r)
			p.mu.Unlock()
			if typeURL = r.TypeUrl; r.ResponseNonce != "" || typeURL == healthType ||
				len(r.InitialResourceVersions) > 0 {
				continue
			}
		case typeURL = <-wake:
		}
		out := &discoveryv3.DeltaDiscoveryResponse{TypeUrl: typeURL, Nonce: fmt.Sprint(n, "-", nonce)}
		p.mu.Lock()
		if m := p.resources[typeURL]; m != nil {
			body, err := anypb.New(m)
			if err != nil {
				return err
			}
			out.Resources = []*discoveryv3.Resource{{Name: "it", Version: fmt.Sprint("v", nonce), Resource: body}}
		}
		p.mu.Unlock()
		if err := g.Send(out); err != nil {
			return err
		}
	}
}

// user is who uses the control stream's resources.
type user struct {
	mu      sync.Mutex
	updates []string
	err     error // the answer to everything
}

func (u *user) hear(what string) error {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.updates = append(u.updates, what)
	return u.err
}

func (u *user) latest() string {
	u.mu.Lock()
	defer u.mu.Unlock()
	return strings.Join(u.updates, "; ")
}

// use makes a relay's user of a config.
func (u *user) use(c *Config) {
	c.SetRoots = func(pem []string) error { return u.hear(fmt.Sprint("roots ", pem)) }
	c.SetConfig = func(m *meshv1alpha1.ProxyConfig) { _ = u.hear(fmt.Sprint("metadata ", m.ProxyMetadata)) }
	c.SetProbe = func(p *networkingv1.ReadinessProbe) error {
		if p == nil {
			return u.hear("no probe")
		}
		return u.hear(fmt.Sprint("probe ", p.PeriodSeconds))
	}
	c.SetNames = func(table []byte) error { return u.hear(fmt.Sprint("names ", len(table))) }
}

func wants(t *testing.T, what string, got func() string, want string) {
	t.Helper()
	eventually(t, func() string {
		if s := got(); s != want {
			return fmt.Sprintf("%s: got %q, want %q", what, s, want)
		}
		return ""
	})
}

// Roots, metadata, probe and names reach the agent and are acknowledged, or rejected with the
// reason. After a restart without a control plane, all but roots come from the cache. The names are claimed when
// a control plane is back.
func TestControlStream(t *testing.T) {
	t.Parallel()
	p := startFakePlane(t, nil)
	p.set(configType, &meshv1alpha1.ProxyConfig{CaCertificatesPem: []string{"a"},
		ProxyMetadata: map[string]string{"a": "b"}})
	p.set(probeType, &networkingv1.ReadinessProbe{PeriodSeconds: 3})
	p.set(namesType, &networkingv1.ReadinessProbe{PeriodSeconds: 7}) // the relay does not read it
	u := &user{}
	c := testConfig(t, p.address)
	u.use(&c)
	c.CacheFile = filepath.Join(t.TempDir(), "cache")
	r := startRelay(t, c, "")
	wants(t, "sent", u.latest, "roots [a]; metadata map[a:b]; probe 3; names 2")
	wants(t, "acknowledged", func() string { return fmt.Sprint(len(p.received("acknowledges"))) }, "3")
	if s := r.Status(); s.Connected != p.address {
		t.Errorf("status %+v", s)
	}
	u.mu.Lock()
	u.err = errors.New("disk full")
	u.mu.Unlock()
	p.set(configType, &meshv1alpha1.ProxyConfig{CaCertificatesPem: []string{"b"}})
	wants(t, "rejected", func() string { return fmt.Sprint(p.received("rejects")) },
		"[1 ProxyConfig: rejects: disk full]")
	u.mu.Lock()
	u.err = nil
	u.mu.Unlock()
	p.set(probeType, nil)
	wants(t, "the last probe stays",
		func() string { return fmt.Sprint(len(p.received("ReadinessProbe: acknowledges"))) }, "2")
	r.stop()

	again := &user{}
	again.use(&c)
	c.Addresses = []string{"127.0.0.1:1"}
	r = startRelay(t, c, "")
	wants(t, "from the cache", again.latest, "metadata map[a:b]; probe 3; names 2")
	if s := r.Status(); s.Confirmed.IsZero() {
		t.Errorf("status %+v", s)
	}
	r.stop()
	c.Addresses = []string{p.address}
	startRelay(t, c, "")
	eventually(t, func() string {
		if len(p.received("NameTable: claims map[it:v")) != 1 {
			return fmt.Sprintf("requests %q", p.received(""))
		}
		return ""
	})
	wants(t, "no probe", func() string { return fmt.Sprint(len(p.received("2 ReadinessProbe: acknowledges"))) }, "1")
}

// A control plane that has no probe says so once.
func TestNoProbe(t *testing.T) {
	t.Parallel()
	p, u := startFakePlane(t, nil), &user{}
	c := testConfig(t, p.address)
	u.use(&c)
	startRelay(t, c, "")
	wants(t, "sent", u.latest, "no probe")
}

// Health is reported at once, when it changes, and again on each connection. A renewed
// certificate makes a new connection.
func TestHealthAndRenewal(t *testing.T) {
	t.Parallel()
	p := startFakePlane(t, nil)
	renewed, open := make(chan struct{}, 1), make(chan net.Conn, 10)
	c := testConfig(t, p.address)
	c.Renewed = renewed
	dial := c.Dial
	c.Dial = func(ctx context.Context, address string) (net.Conn, error) {
		conn, err := dial(ctx, address)
		open <- conn
		return conn, err
	}
	r := startRelay(t, c, "")
	r.ReportHealth("503", nil)
	wants(t, "reported", func() string { return fmt.Sprint(p.received("Health")) },
		"[1 HealthInformation: rejects: 503]")
	r.ReportHealth("", nil)
	wants(t, "well", func() string { return fmt.Sprint(len(p.received("Health"))) }, "2")
	renewed <- struct{}{}
	wants(t, "reported again", func() string { return fmt.Sprint(p.received("2 Health")) },
		"[2 HealthInformation: asks]")
	first := <-open
	eventually(t, func() string {
		if _, err := first.Write(nil); err == nil {
			return "the first connection is open"
		}
		return ""
	})
	wants(t, "connected", func() string { return r.Status().Connected }, p.address)
}

// A control plane that refuses the workload is left for the next address. Only a certificate that
// is not accepted is reported.
func TestRefused(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		err    error
		called bool
		want   string
	}{
		"certificate": {status.Error(codes.Unauthenticated, "who?"), true, "Unauthenticated: who?; see \"ashore-agent " +
			"status\""},
		"identity":  {status.Error(codes.PermissionDenied, "no"), false, "PermissionDenied: no"},
		"not ready": {status.Error(codes.Unavailable, "wait"), false, "Unavailable: wait"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			bad, good := startFakePlane(t, tc.err), startFakePlane(t, nil)
			c := testConfig(t, bad.address)
			calls := make(chan struct{}, 100)
			c.Refused = func() { calls <- struct{}{} }
			r := startRelay(t, c, "")
			eventually(t, func() string {
				if s := r.Status(); !strings.Contains(s.Problem, bad.address+": "+tc.want) {
					return fmt.Sprintf("status %+v, want %q", s, tc.want)
				}
				return ""
			})
			r.stop()
			if (len(calls) > 0) != tc.called {
				t.Errorf("Refused was called %d times, want that it is: %v", len(calls), tc.called)
			}
			c.Addresses = append(c.Addresses, good.address)
			r = startRelay(t, c, "")
			wants(t, "connected", func() string { return r.Status().Connected }, good.address)
		})
	}
}

// A port that does not speak gRPC is reported with the ports to use.
func TestOtherProtocol(t *testing.T) {
	t.Parallel()
	web := httptest.NewServer(http.NotFoundHandler())
	t.Cleanup(web.Close)
	r := startRelay(t, testConfig(t, web.Listener.Addr().String()), "")
	eventually(t, func() string {
		if s := r.Status(); !strings.Contains(s.Problem, "it does not speak gRPC: give the port for TLS (15012)") {
			return fmt.Sprintf("status %+v", s)
		}
		return ""
	})
}

// The wait grows to a maximum when all addresses fail. Each relay has its own.
func TestBackoff(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		failures, addresses int
		low, high           string
	}{
		{1, 1, "125ms", "500ms"},
		{2, 2, "125ms", "500ms"},
		{3, 2, "250ms", "1s"},
		{100, 1, "7.5s", "30s"},
	} {
		for range 100 {
			if d := backoff(tc.failures, tc.addresses); d < duration(t, tc.low) ||
				d >= duration(t, tc.high) {
				t.Errorf("%+v: %s", tc, d)
			}
		}
	}
}

func duration(t *testing.T, text string) time.Duration {
	t.Helper()
	d, err := time.ParseDuration(text)
	if err != nil {
		t.Fatal(err)
	}
	return d
}
