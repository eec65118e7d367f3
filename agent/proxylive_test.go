package agent

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ashore-mesh/ashore/internal/testenvoy"
	"github.com/ashore-mesh/ashore/internal/testport"
	"github.com/ashore-mesh/ashore/xds/resource"
	"github.com/ashore-mesh/ashore/xds/xdstest"
)

const proxiedBootstrap = `
node: {id: %q, cluster: test, metadata: {NAMESPACE: shop}}
admin: {address: {pipe: {path: %q}}}
dynamic_resources:
  ads_config: {api_type: DELTA_GRPC, transport_api_version: V3, set_node_on_first_message_only: true, grpc_services: [{envoy_grpc: {cluster_name: xds-grpc}}]}
  cds_config: {ads: {}, resource_api_version: V3, initial_fetch_timeout: 0s}
  lds_config: {ads: {}, resource_api_version: V3, initial_fetch_timeout: 0s}
static_resources:
  clusters:
  - name: xds-grpc
    type: STATIC
    connect_timeout: 1s
    typed_extension_protocol_options:
      envoy.extensions.upstreams.http.v3.HttpProtocolOptions:
        "@type": type.googleapis.com/envoy.extensions.upstreams.http.v3.HttpProtocolOptions
        explicit_http_config: {http2_protocol_options: {}}
    load_assignment:
      cluster_name: xds-grpc
      endpoints: [{lb_endpoints: [{endpoint: {address: {pipe: {path: %q}}}}]}]
`

// realEnvoy is one that has a proxy's socket as its control plane.
type realEnvoy struct {
	admin *http.Client
	kill  func()
}

func startRealEnvoy(t *testing.T, socket string) *realEnvoy {
	t.Helper()
	admin := filepath.Join(stateFolder(t), "admin")
	kill := testenvoy.Start(t, fmt.Appendf(nil, proxiedBootstrap, xdstest.NodeID("web", "127.0.16.1"), admin, socket), "--log-level", "info", "--drain-time-s", "1")
	return &realEnvoy{testenvoy.Admin(admin), kill}
}

// traffic counts requests.
type traffic struct {
	sent, failed atomic.Int64
	last         atomic.Pointer[error]
	name         atomic.Pointer[string] // who answered last
}

func (a *traffic) once(client *http.Client, port uint32) {
	a.sent.Add(1)
	r, err := client.Get(fmt.Sprintf("http://127.0.0.1:%d/", port))
	if err == nil {
		var b []byte
		b, err = io.ReadAll(r.Body)
		err = errors.Join(err, r.Body.Close())
		if err == nil && r.StatusCode != http.StatusOK {
			err = fmt.Errorf("%s: %s", r.Status, b)
		}
		name := string(b)
		a.name.Store(&name)
	}
	if err != nil {
		a.failed.Add(1)
		a.last.Store(&err)
	}
}

// drive sends requests, some a millisecond, until the function that it returns is called.
func drive(t *testing.T, port uint32) (a *traffic, stop func()) {
	a = &traffic{}
	ctx, cancel := context.WithCancel(t.Context())
	var group sync.WaitGroup
	for range 2 {
		group.Go(func() {
			client := &http.Client{Transport: &http.Transport{}, Timeout: 5 * time.Second}
			defer client.CloseIdleConnections()
			for ctx.Err() == nil {
				a.once(client, port)
				time.Sleep(time.Millisecond)
			}
		})
	}
	stop = func() { cancel(); group.Wait() }
	t.Cleanup(stop)
	return a, stop
}

// namedBackend answers with its name.
func namedBackend(t *testing.T, name string) uint32 {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, name) }))
	t.Cleanup(s.Close)
	return uint32(s.Listener.Addr().(*net.TCPAddr).Port)
}

// reaches waits until the port leads to the backend of that name.
func reaches(t *testing.T, port uint32, name string) {
	t.Helper()
	client := &http.Client{Timeout: time.Second, Transport: &http.Transport{}}
	defer client.CloseIdleConnections()
	becomesTrue(t, func() string {
		var a traffic
		if a.once(client, port); a.failed.Load() > 0 || *a.name.Load() != name {
			return fmt.Sprintf("port %d does not lead to %s: %v", port, name, a.last.Load())
		}
		return ""
	})
}

// route1 is one listener that leads to a backend by a cluster of that name.
func route1(port uint32, cluster string, backend uint32) []*resource.Resource {
	return []*resource.Resource{xdstest.Cluster(cluster, time.Second), xdstest.Endpoints(cluster, backend),
		xdstest.Listener("l", port, "r"), xdstest.Route("r", cluster)}
}

// Under load, a control plane that is killed, comes back, or is left for another one, and an agent that is killed and starts on its
// copy while there is no control plane, cost no request, and what did not change is not sent again.
func TestLiveProxy(t *testing.T) {
	t.Parallel()
	port, one, two := uint32(testport.Free(t)), namedBackend(t, "one"), namedBackend(t, "two")
	a, b := testport.Address(t), testport.Address(t)
	socket := filepath.Join(stateFolder(t), "xds.sock")
	first := startReplica(t, a, route1(port, "c0", one)...)
	p := startProxyAt(t, socket, withCopy(filepath.Join(t.TempDir(), "copy")), a, b)
	startRealEnvoy(t, socket)
	reaches(t, port, "one")
	becomesTrue(t, first.latest)
	load, stop := drive(t, port)

	// killed, and back
	first.stop()
	first = startReplica(t, a, route1(port, "c0", one)...)
	becomesTrue(t, func() string { return settledAt(first, 4) })
	if n := first.counts.sent(); n > 0 {
		t.Errorf("a control plane that came back sent %d responses, want none", n)
	}
	// a change, in the order that it needs
	for i := 1; i <= 6; i++ {
		backend, name := []uint32{one, two}[i%2], []string{"one", "two"}[i%2]
		first.publish(route1(port, fmt.Sprint("c", i), backend)...)
		reaches(t, port, name)
	}
	becomesTrue(t, first.latest)
	// left for another one
	first.stop()
	second := startReplica(t, b, route1(port, "c6", one)...)
	becomesTrue(t, func() string { return settledAt(second, 4) })
	if n := second.counts.sent(); n > 0 {
		t.Errorf("the other replica sent %d responses, want none", n)
	}
	// the agent killed, with no control plane
	dir := copied(t, p, 4)
	second.stop()
	p.stop()
	again := startProxyAt(t, socket, withCopy(dir), a, b)
	becomesTrue(t, func() string {
		if s := again.Status(); s.Envoys == 0 || s.CopyFrom.IsZero() {
			return fmt.Sprintf("%+v", s)
		}
		return ""
	})
	reaches(t, port, "one")
	// and a change when it is back
	third := startReplica(t, a, route1(port, "c6", one)...)
	becomesTrue(t, func() string { return settledAt(third, 4) })
	third.publish(route1(port, "c7", two)...)
	reaches(t, port, "two")
	becomesTrue(t, third.latest)

	stop()
	if n := load.failed.Load(); n > 0 {
		t.Errorf("%d of %d requests failed, for example: %v", n, load.sent.Load(), *load.last.Load())
	}
	t.Logf("%d requests", load.sent.Load())
}

// settledAt says whether a control plane has one proxy that asked for that many types and has everything.
func settledAt(r *replica, types int) string {
	proxies := r.server.Proxies()
	if len(proxies) != 1 || len(proxies[0].Types) < types {
		return fmt.Sprintf("proxies %+v", proxies)
	}
	return r.latest()
}

// An Envoy that is killed is served from memory, with no control plane too; the certificate of a listener that it refuses is
// shown with its words, and its successor has what was taken before.
func TestLiveProxyRestarts(t *testing.T) {
	t.Parallel()
	port, bad, one := uint32(testport.Free(t)), uint32(testport.Free(t)), namedBackend(t, "one")
	socket := filepath.Join(stateFolder(t), "xds.sock")
	r := startReplica(t, testport.Address(t), route1(port, "c0", one)...)
	p := startProxyAt(t, socket, nil, r.address)
	e := startRealEnvoy(t, socket)
	reaches(t, port, "one")
	becomesTrue(t, r.latest)

	e.kill()
	sent := r.counts.sent()
	e = startRealEnvoy(t, socket)
	reaches(t, port, "one")
	if n := r.counts.sent() - sent; n > 0 {
		t.Errorf("Envoy's restart cost the control plane %d responses", n)
	}
	r.publish(append(route1(port, "c0", one), xdstest.BadListener("bad", bad))...)
	becomesTrue(t, func() string {
		got := r.refusals()
		if len(got) != 1 || !strings.HasPrefix(got[0], "bad: ") || !strings.Contains(got[0], "no.such") {
			return fmt.Sprintf("refusals %q", got)
		}
		return r.latest()
	})
	if words := p.Status().Words; !slices.ContainsFunc(words, func(s string) bool { return strings.HasPrefix(s, "Listener bad: ") }) {
		t.Errorf("status says %q", words)
	}
	r.stop()
	e.kill()
	startRealEnvoy(t, socket)
	reaches(t, port, "one")
}
