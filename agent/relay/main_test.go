package relay

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/structpb"
	meshv1alpha1 "istio.io/api/mesh/v1alpha1"
	networkingv1 "istio.io/api/networking/v1alpha3"

	"github.com/ashore-mesh/ashore/internal/testlog"
	"github.com/ashore-mesh/ashore/internal/testport"
	"github.com/ashore-mesh/ashore/xds"
	"github.com/ashore-mesh/ashore/xds/resource"
	"github.com/ashore-mesh/ashore/xds/xdstest"
)

func TestMain(m *testing.M) {
	lock, err := testport.Alone("agent")
	if err != nil {
		panic(err)
	}
	defer lock.Close() //nolint:errcheck // the end of the process does
	goleak.VerifyTestMain(m)
}

// eventually fails the test when check returns a reason for too long.
func eventually(t *testing.T, check func() string) {
	t.Helper()
	tick := time.NewTicker(3 * time.Millisecond)
	defer tick.Stop()
	timeout := time.After(40 * time.Second)
	for {
		reason := check()
		if reason == "" {
			return
		}
		select {
		case <-tick.C:
		case <-timeout:
			t.Fatalf("still: %s", reason)
		}
	}
}

// plane is a real xDS server whose resources are given by hand.
type plane struct {
	address string
	server  *xds.Server
	mesh    *xdstest.Mesh
	stop    func()
	metrics *prometheus.Registry
}

// startPlane serves until the test ends or stop is called.
func startPlane(t *testing.T, address string, resources ...*resource.Resource) *plane {
	t.Helper()
	p := &plane{address: address, mesh: xdstest.NewMesh(), metrics: prometheus.NewRegistry()}
	var err error
	if p.server, err = xds.New(xds.Config{Generator: p.mesh, Log: testlog.New(t).Named(address),
		Registerer: p.metrics, RemovalWait: time.Second}); err != nil {
		t.Fatal(err)
	}
	p.publish(resources...)
	var l net.Listener
	eventually(t, func() string {
		if l, err = net.Listen("tcp", address); err != nil {
			return err.Error()
		}
		return ""
	})
	g := grpc.NewServer(xds.ServerOptions()...)
	p.server.Register(g)
	ctx, cancel := context.WithCancel(context.Background())
	var group sync.WaitGroup
	group.Go(func() { _ = p.server.Run(ctx) })
	group.Go(func() { _ = g.Serve(l) })
	p.stop = sync.OnceFunc(func() {
		cancel()
		g.Stop()
		group.Wait()
	})
	t.Cleanup(p.stop)
	return p
}

func (p *plane) publish(resources ...*resource.Resource) {
	p.server.Publish(p.mesh.Context(xdstest.Layers(resources...)), time.Now())
}

// count is a counter of the server by its label, where it is not zero: "cds 1".
func (p *plane) count(metric string) (out []string) {
	families, err := p.metrics.Gather()
	if err != nil {
		return []string{err.Error()}
	}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			if f.GetName() != metric || m.GetCounter().GetValue() == 0 {
				continue
			}
			if kind := m.GetLabel()[0].GetValue(); kind != "probe" { // that is for the agent itself
				out = append(out, fmt.Sprint(kind, " ", m.GetCounter().GetValue()))
			}
		}
	}
	return out
}

// toEnvoy are the responses that were sent to Envoy.
func (p *plane) toEnvoy() []string { return p.count("pilot_xds_pushes") }

// asked returns why not one proxy is connected that asked for the four types of Envoy.
func (p *plane) asked() string {
	proxies := p.server.Proxies()
	n := 0
	for _, s := range proxies {
		for _, ty := range s.Types {
			if slices.Contains([]string{resource.ClusterType, resource.EndpointType, resource.ListenerType, resource.RouteType},
				ty.TypeURL) {
				n++
			}
		}
	}
	if len(proxies) != 1 || n != 4 {
		return fmt.Sprintf("%s has %d proxies, which asked for %d types", p.address, len(proxies), n)
	}
	return ""
}

// settled is asked, and why that proxy does not have everything.
func (p *plane) settled() string {
	if reason := p.asked(); reason != "" {
		return reason
	}
	for _, s := range p.server.Proxies() {
		for _, ty := range s.Types {
			if !ty.Latest {
				return fmt.Sprintf("%s lacks %s: %+v", s.ID, ty.TypeURL, ty.Status)
			}
		}
	}
	return ""
}

// running is a relay with the server that Envoy talks to.
type running struct {
	*Relay
	socket string
	stop   func()
}

// testNode is a node of the tests.
func testNode(t testing.TB, stream string) *corev3.Node {
	t.Helper()
	meta, err := structpb.NewStruct(map[string]any{"NAMESPACE": "shop", "ASHORE_STREAM": stream})
	if err != nil {
		t.Fatal(err)
	}
	return &corev3.Node{Id: xdstest.NodeID("web", "127.0.16.1"), Metadata: meta}
}

// testConfig follows planes without TLS.
func testConfig(t testing.TB, addresses ...string) Config {
	t.Helper()
	return Config{
		Node: testNode(t, "control"), Addresses: addresses, Owner: "web", Log: testlog.New(t),
		Dial: func(ctx context.Context, address string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "tcp", address)
		},
		SetRoots:  func([]string) error { return nil },
		SetConfig: func(*meshv1alpha1.ProxyConfig) {},
		// A server without roots does not answer a request for them. One for the probe it always
		// does.
		SetProbe: func(*networkingv1.ReadinessProbe) error { return nil },
	}
}

// startRelay runs a relay until the test ends or stop is called. socket may be empty.
func startRelay(t *testing.T, c Config, socket string) *running {
	t.Helper()
	if socket == "" {
		socket = filepath.Join(folder(t), "xds.sock")
	}
	r, err := New(c)
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	g := grpc.NewServer()
	r.Register(g)
	ctx, cancel := context.WithCancel(context.Background())
	var group sync.WaitGroup
	group.Go(func() {
		if err := g.Serve(l); err != nil && !errors.Is(err, grpc.ErrServerStopped) {
			t.Error(err)
		}
	})
	group.Go(func() {
		if err := r.Run(ctx); err != nil {
			t.Error(err)
		}
	})
	stop := sync.OnceFunc(func() {
		cancel()
		g.Stop()
		group.Wait()
	})
	t.Cleanup(stop)
	return &running{r, "unix:" + socket, stop}
}

// folder is short: t.TempDir's may not fit into a socket's address.
func folder(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "relay")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	return dir
}

// fakeEnvoy makes a fake Envoy of the relay. edit may be nil.
func (r *running) fakeEnvoy(edit func(*xdstest.Config)) *xdstest.Envoy {
	c := xdstest.Config{Addr: r.socket, ID: xdstest.NodeID("web", "127.0.16.1")}
	if edit != nil {
		edit(&c)
	}
	return xdstest.NewEnvoy(c)
}

// connect connects a fake Envoy, again and again as the real one does, until the test ends or
// leave is called.
func connect(t *testing.T, e *xdstest.Envoy) (leave func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	var group sync.WaitGroup
	group.Go(func() {
		for ctx.Err() == nil {
			if err := e.Run(ctx); err != nil && ctx.Err() == nil && status.Code(err) != codes.Unavailable {
				t.Errorf("stream of Envoy: %v", err)
			}
			select {
			case <-ctx.Done():
			case <-time.After(5 * time.Millisecond):
			}
		}
	})
	leave = sync.OnceFunc(func() {
		cancel()
		group.Wait()
	})
	t.Cleanup(leave)
	return leave
}
