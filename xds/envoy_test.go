package xds_test

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/ashore-mesh/ashore/internal/testenvoy"
	"github.com/ashore-mesh/ashore/internal/testport"
	"github.com/ashore-mesh/ashore/xds"
	"github.com/ashore-mesh/ashore/xds/resource"
	"github.com/ashore-mesh/ashore/xds/xdstest"
)

// envoy is a real Envoy that a plane configures.
type envoy struct {
	t     *testing.T
	admin *http.Client
}

const bootstrap = `
node: {id: %q, cluster: test, metadata: {NAMESPACE: shop, INSTANCE_IPS: 127.0.0.1}}
admin: {address: {pipe: {path: %q}}}
dynamic_resources:
  ads_config: {api_type: %s, transport_api_version: V3, grpc_services: [{envoy_grpc: {cluster_name: xds}}]}
  cds_config: {ads: {}, resource_api_version: V3, initial_fetch_timeout: 5s}
  lds_config: {ads: {}, resource_api_version: V3, initial_fetch_timeout: 5s}
static_resources:
  clusters:
  - name: xds
    type: STATIC
    connect_timeout: 1s
    typed_extension_protocol_options:
      envoy.extensions.upstreams.http.v3.HttpProtocolOptions:
        "@type": type.googleapis.com/envoy.extensions.upstreams.http.v3.HttpProtocolOptions
        explicit_http_config: {http2_protocol_options: {}}
    load_assignment:
      cluster_name: xds
      endpoints: [{lb_endpoints: [{endpoint: {address: {socket_address: {address: 127.0.0.1, port_value: %s}}}}]}]
`

// startEnvoy runs an Envoy until the test ends.
func startEnvoy(t *testing.T, plane string, delta bool) *envoy {
	t.Helper()
	dir, err := os.MkdirTemp("", "envoy") // t.TempDir is too long for a socket's name
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	_, port, err := net.SplitHostPort(plane)
	if err != nil {
		t.Fatal(err)
	}
	api := "GRPC"
	if delta {
		api = "DELTA_GRPC"
	}
	socket := filepath.Join(dir, "admin")
	testenvoy.Start(t, fmt.Appendf(nil, bootstrap, xdstest.NodeID("web", "127.0.0.1"), socket, api, port),
		"--log-level", "info", "--drain-time-s", "1")
	return &envoy{t: t, admin: testenvoy.Admin(socket)}
}

// get reads a page of the admin interface, "" when it does not answer.
func (e *envoy) get(page string) string {
	r, err := e.admin.Get("http://admin" + page)
	if err != nil {
		return ""
	}
	defer r.Body.Close()
	b, _ := io.ReadAll(r.Body)
	return string(b)
}

// stat reads one counter or gauge, -1 when there is none.
func (e *envoy) stat(name string) int {
	for line := range strings.Lines(e.get("/stats?filter=^" + name + "$")) {
		if k, v, ok := strings.Cut(strings.TrimSpace(line), ": "); ok && k == name {
			n, err := strconv.Atoi(v)
			if err == nil {
				return n
			}
		}
	}
	return -1
}

// backend answers with its name.
func backend(t *testing.T, name string) uint32 {
	t.Helper()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, name) }))
	t.Cleanup(s.Close)
	return uint32(s.Listener.Addr().(*net.TCPAddr).Port)
}

// ask sends a request through the listener on a port.
func ask(client *http.Client, port uint32) (string, error) {
	r, err := client.Get(fmt.Sprintf("http://127.0.0.1:%d/", port))
	if err != nil {
		return "", err
	}
	defer r.Body.Close()
	b, err := io.ReadAll(r.Body)
	if err == nil && r.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s", r.Status, b)
	}
	return string(b), err
}

// answers waits until the listener on a port leads to the backend of that name.
func answers(t *testing.T, port uint32, name string) {
	t.Helper()
	client := &http.Client{Timeout: time.Second}
	defer client.CloseIdleConnections()
	eventually(t, func() string {
		if got, err := ask(client, port); err != nil || got != name {
			return fmt.Sprintf("port %d answers %q, %v; want %q", port, got, err, name)
		}
		return ""
	})
}

// both runs a test with the incremental protocol and with state of the world.
func both(t *testing.T, f func(t *testing.T, delta bool)) {
	for name, delta := range map[string]bool{"delta": true, "states": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f(t, delta)
		})
	}
}

// pushes is how many responses a registry counted.
func pushes(t *testing.T, r *prometheus.Registry) map[string]int {
	t.Helper()
	families, err := r.Gather()
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]int{}
	for _, f := range families {
		if f.GetName() != "pilot_xds_pushes" {
			continue
		}
		for _, m := range f.GetMetric() {
			if n := int(m.GetCounter().GetValue()); n > 0 {
				out[m.GetLabel()[0].GetValue()] = n
			}
		}
	}
	return out
}

// An Envoy that reconnects, to a control plane without a memory, is sent nothing that it has, and
// over state of the world everything.
func TestEnvoyReconnect(t *testing.T) {
	t.Parallel()
	both(t, func(t *testing.T, delta bool) {
		port, up := uint32(testport.Free(t)), backend(t, "a")
		all := []*resource.Resource{
			xdstest.Cluster("a", time.Second), xdstest.Endpoints("a", up),
			xdstest.Cluster("b", time.Second), xdstest.Endpoints("b", up),
			xdstest.Listener("l", port, "r"), xdstest.Route("r", "a"),
		}
		p := newPlane(t, nil, testport.Address(t), nil)
		p.publish(all...)
		e := startEnvoy(t, p.addr, delta)
		answers(t, port, "a")
		eventually(t, func() string { return latest(p.server) })
		stats := func() string {
			return e.get("/stats?filter=update_success|update_attempt|lds.update_success|rds.r.update_success|warming_state|config_reload$")
		}
		before := e.stat("cluster.a.update_success")
		p.stop()

		registry := prometheus.NewRegistry()
		again := newPlane(t, nil, p.addr, func(c *xds.Config) { c.Registerer = registry })
		again.publish(all...)
		eventually(t, func() string {
			if proxies := again.server.Proxies(); len(proxies) != 1 || len(proxies[0].Types) != 4 {
				return fmt.Sprintf("proxies %+v, want one with 4 types", proxies)
			}
			return latest(again.server)
		})
		got := pushes(t, registry)
		if !delta {
			clear(got)
		} else if after := e.stat("cluster.a.update_success"); after != before {
			t.Errorf("cluster a was updated %d times, %d before the reconnect", after, before)
		}
		if len(got) != 0 {
			t.Errorf("the reconnect cost %v, want nothing\n%s", got, stats())
		}
		// and what changes then arrives
		other := backend(t, "b")
		all[1] = xdstest.Endpoints("a", other)
		again.publish(all...)
		answers(t, port, "b")
	})
}

// latest says who does not have the latest.
func latest(s *xds.Server) string {
	for _, p := range s.Proxies() {
		for _, ty := range p.Types {
			if !ty.Latest {
				return fmt.Sprintf("%s lacks %s: %+v", p.ID, ty.TypeURL, ty.Status)
			}
		}
	}
	return ""
}

// One bad listener among good ones is refused alone, and its repair while the stream is down
// arrives.
func TestEnvoyRefusal(t *testing.T) {
	t.Parallel()
	both(t, func(t *testing.T, delta bool) {
		one, two, three := uint32(testport.Free(t)), uint32(testport.Free(t)), uint32(testport.Free(t))
		up := backend(t, "a")
		base := []*resource.Resource{xdstest.Cluster("a", time.Second), xdstest.Endpoints("a", up),
			xdstest.Route("r", "a")}
		with := func(more ...*resource.Resource) []*resource.Resource { return append(more, base...) }
		p := newPlane(t, nil, testport.Address(t), nil)
		p.publish(with(xdstest.Listener("one", one, "r"))...)
		startEnvoy(t, p.addr, delta)
		answers(t, one, "a")

		p.publish(with(xdstest.Listener("one", one, "r"), xdstest.BadListener("two", two),
			xdstest.Listener("three", three, "r"))...)
		answers(t, three, "a")
		eventually(t, func() string {
			for _, ty := range p.server.Proxies()[0].Types {
				if ty.TypeURL == resource.ListenerType && len(ty.Rejected) == 1 && ty.Rejected[0].Name == "two" &&
					strings.Contains(ty.Rejected[0].Message, "no.such") {
					return latest(p.server)
				}
			}
			return fmt.Sprintf("no refusal of listener two: %+v", p.server.Proxies())
		})
		answers(t, one, "a")
		p.stop()

		again := newPlane(t, nil, p.addr, nil)
		again.publish(with(xdstest.Listener("one", one, "r"), xdstest.Listener("two", two, "r"))...)
		answers(t, two, "a")
		eventually(t, func() string {
			if c, err := net.Dial("tcp", fmt.Sprintf("127.0.0.1:%d", three)); err == nil {
				c.Close()
				return "listener three is still there"
			}
			return ""
		})
		answers(t, one, "a")
	})
}

// A cluster that changes keeps working at once: its endpoints are sent again, or Envoy would wait
// for them until its timeout.
func TestEnvoyChangedCluster(t *testing.T) {
	t.Parallel()
	both(t, func(t *testing.T, delta bool) {
		port, up := uint32(testport.Free(t)), backend(t, "a")
		rest := []*resource.Resource{xdstest.Endpoints("a", up), xdstest.Listener("l", port, "r"),
			xdstest.Route("r", "a")}
		p := newPlane(t, nil, testport.Address(t), nil)
		p.publish(append(rest, xdstest.Cluster("a", time.Second))...)
		e := startEnvoy(t, p.addr, delta)
		answers(t, port, "a")
		p.publish(append(rest, xdstest.Cluster("a", 2*time.Second))...)
		eventually(t, func() string {
			if s := e.get("/config_dump?resource=dynamic_active_clusters"); !strings.Contains(s,
				`"connect_timeout": "2s"`) {
				return "the changed cluster is not active"
			}
			return latest(p.server)
		})
		if n := e.stat("cluster.a.init_fetch_timeout"); n > 0 {
			t.Errorf("the cluster became active by its timeout (%d)", n)
		}
	})
}

// A new cluster and a route to it in one change, and the removal of the old ones in the same, fail
// no request.
func TestEnvoyMakeBeforeBreak(t *testing.T) {
	t.Parallel()
	both(t, func(t *testing.T, delta bool) {
		port, up := uint32(testport.Free(t)), backend(t, "a")
		world := func(i int) []*resource.Resource {
			c := fmt.Sprint("c", i)
			return []*resource.Resource{xdstest.Cluster(c, time.Second), xdstest.Endpoints(c, up),
				xdstest.Listener("l", port, "r"), xdstest.Route("r", c)}
		}
		p := newPlane(t, nil, testport.Address(t), nil)
		p.publish(world(0)...)
		e := startEnvoy(t, p.addr, delta)
		answers(t, port, "a")

		var wg sync.WaitGroup
		var failed, sent atomic.Int64
		var example atomic.Pointer[error]
		ctx, cancel := context.WithCancel(t.Context())
		for range 4 {
			wg.Go(func() {
				client := &http.Client{Transport: &http.Transport{}}
				defer client.CloseIdleConnections()
				for ctx.Err() == nil {
					sent.Add(1)
					if _, err := ask(client, port); err != nil {
						failed.Add(1)
						example.Store(&err)
					}
				}
			})
		}
		for i := 1; i <= 5; i++ {
			p.publish(world(i)...)
			c := fmt.Sprint("c", i)
			eventually(t, func() string {
				if e.stat("cluster."+c+".upstream_rq_total") < 1 {
					return c + " has no traffic"
				}
				if n := e.stat("cluster_manager.active_clusters"); n != 2 { // it and xds
					return fmt.Sprintf("%d clusters are left, want 2", n)
				}
				return latest(p.server)
			})
		}
		cancel()
		wg.Wait()
		if n := failed.Load(); n > 0 {
			t.Errorf("%d of %d requests failed, for example: %v", n, sent.Load(), *example.Load())
		}
	})
}

// unfinished is a control plane that changes cluster a and does not send its endpoints again.
type unfinished struct {
	discoveryv3.UnimplementedAggregatedDiscoveryServiceServer
	endpoints *resource.Resource
	changed   chan struct{} // closed when the changed cluster is sent
}

func (u *unfinished) DeltaAggregatedResources(
	st discoveryv3.AggregatedDiscoveryService_DeltaAggregatedResourcesServer,
) error {
	send := func(r *resource.Resource) error {
		return st.Send(&discoveryv3.DeltaDiscoveryResponse{TypeUrl: r.TypeURL, Nonce: r.Version(),
			Resources: []*discoveryv3.Resource{{Name: r.Name, Version: r.Version(),
				Resource: &anypb.Any{TypeUrl: r.TypeURL, Value: r.Body()}}}})
	}
	for {
		m, err := st.Recv()
		switch {
		case err != nil:
			return err
		case m.ResponseNonce == "" && m.TypeUrl == resource.ClusterType:
			err = send(xdstest.Cluster("a", time.Second))
		case m.ResponseNonce == "" && m.TypeUrl == resource.EndpointType:
			err = send(u.endpoints)
		case m.TypeUrl == resource.EndpointType:
			err = send(xdstest.Cluster("a", 2*time.Second))
			close(u.changed)
		}
		if err != nil {
			return err
		}
	}
}

// A control plane restarts after it changed a cluster, and before Envoy had its endpoints. Envoy does
// not wait for its timeout of 15 s.
func TestEnvoyReconnectsWarming(t *testing.T) {
	t.Parallel()
	up := backend(t, "a")
	u := &unfinished{endpoints: xdstest.Endpoints("a", up), changed: make(chan struct{})}
	l, err := net.Listen("tcp", testport.Address(t))
	if err != nil {
		t.Fatal(err)
	}
	g := grpc.NewServer()
	discoveryv3.RegisterAggregatedDiscoveryServiceServer(g, u)
	go g.Serve(l)
	t.Cleanup(g.Stop)
	e := startEnvoy(t, l.Addr().String(), true)
	<-u.changed
	eventually(t, func() string {
		if n := e.stat("cluster_manager.warming_clusters"); n != 1 {
			return fmt.Sprintf("%d clusters are warming, want 1", n)
		}
		return ""
	})
	g.Stop()

	p := newPlane(t, nil, l.Addr().String(), nil)
	p.publish(xdstest.Cluster("a", 2*time.Second), u.endpoints)
	eventually(t, func() string {
		if proxies := p.server.Proxies(); len(proxies) != 1 || len(proxies[0].Types) != 3 {
			return fmt.Sprintf("proxies %+v, want one with 3 types", proxies)
		}
		return latest(p.server)
	})
	if n := e.stat("cluster.a.init_fetch_timeout"); n > 0 {
		t.Errorf("the cluster became active by its timeout (%d)", n)
	}
}
