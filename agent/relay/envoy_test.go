package relay

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
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

const envoyBootstrap = `
node: {id: %q, cluster: test, metadata: {NAMESPACE: shop, ASHORE_STREAM: config}}
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

// realEnvoy starts an Envoy that finds its control plane at a socket.
func realEnvoy(t *testing.T, socket string) (kill func()) {
	t.Helper()
	bootstrap := fmt.Appendf(nil, envoyBootstrap, xdstest.NodeID("web", "127.0.16.1"),
		filepath.Join(folder(t), "admin"), socket)
	return testenvoy.Start(t, bootstrap, "--drain-time-s", "1")
}

// backend answers with its name.
func backend(t *testing.T, name string) (port uint32) {
	t.Helper()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_,
			_ = io.WriteString(w, name)
	}))
	t.Cleanup(s.Close)
	return uint32(s.Listener.Addr().(*net.TCPAddr).Port)
}

// get is what a request to a port is answered.
func get(client *http.Client, port uint32) (string, error) {
	r, err := client.Get(fmt.Sprintf("http://127.0.0.1:%d/", port))
	if err != nil {
		return "", err
	}
	body, err := io.ReadAll(r.Body)
	if err = errors.Join(err, r.Body.Close()); err == nil && r.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s", r.Status, body)
	}
	return string(body), err
}

// reaches waits until a port leads to the backend of that name.
func reaches(t *testing.T, port uint32, name string) {
	t.Helper()
	client := &http.Client{Timeout: time.Second, Transport: &http.Transport{DisableKeepAlives: true}}
	eventually(t, func() string {
		if got, err := get(client, port); err != nil || got != name {
			return fmt.Sprintf("port %d leads to %q, %v; want %s", port, got, err, name)
		}
		return ""
	})
}

// drive sends requests one after another until done is called, which returns how many were sent
// and why some failed.
func drive(t *testing.T, port uint32) (done func() (sent int64, failures []error)) {
	ctx, cancel := context.WithCancel(t.Context())
	var group sync.WaitGroup
	var sent atomic.Int64
	var failures []error
	group.Go(func() {
		client := &http.Client{Timeout: 5 * time.Second, Transport: &http.Transport{}}
		defer client.CloseIdleConnections()
		for tick := time.NewTicker(time.Millisecond); ctx.Err() == nil; <-tick.C {
			if _, err := get(client, port); err != nil {
				failures = append(failures, err)
			}
			sent.Add(1)
		}
	})
	t.Cleanup(cancel)
	return func() (int64, []error) {
		cancel()
		group.Wait()
		return sent.Load(), failures
	}
}

// leadsTo is a listener at a port that leads to a backend by a cluster of that name.
func leadsTo(port uint32, cluster string, backend uint32) []*resource.Resource {
	return []*resource.Resource{xdstest.Cluster(cluster, time.Second), xdstest.Endpoints(cluster, backend),
		xdstest.Listener("l", port, "r"), xdstest.Route("r", cluster)}
}

// A real Envoy under load: the control plane is killed, comes back, is left for another one; the
// agent is killed and starts from its cache while there is no control plane. No request fails,
// and what did not change is not sent again.
func TestRealEnvoy(t *testing.T) {
	t.Parallel()
	port, one, two := uint32(testport.Free(t)), backend(t, "one"), backend(t, "two")
	a, b := testport.Address(t), testport.Address(t)
	socket := filepath.Join(folder(t), "xds.sock")
	first := startPlane(t, a, leadsTo(port, "c0", one)...)
	c := testConfig(t, a, b)
	c.CacheFile = filepath.Join(t.TempDir(), "cache")
	r := startRelay(t, c, socket)
	kill := realEnvoy(t, socket)
	reaches(t, port, "one")
	eventually(t, first.settled)
	done := drive(t, port)

	first.stop()
	first = startPlane(t, a, leadsTo(port, "c0", one)...)
	eventually(t, first.settled)
	if got := first.toEnvoy(); len(got) > 0 {
		t.Errorf("a control plane that came back sent %q", got)
	}
	for i := 1; i <= 6; i++ {
		backend, name := []uint32{one, two}[i%2], []string{"one", "two"}[i%2]
		first.publish(leadsTo(port, fmt.Sprint("c", i), backend)...)
		reaches(t, port, name)
	}
	eventually(t, first.settled)
	first.stop()
	second := startPlane(t, b, leadsTo(port, "c6", one)...)
	eventually(t, second.settled)
	if got := second.toEnvoy(); len(got) > 0 {
		t.Errorf("the other control plane sent %q", got)
	}
	second.stop()
	r = restarted(t, r, c)
	eventually(t, func() string {
		r.mu.Lock()
		defer r.mu.Unlock()
		if len(r.sessions) == 0 {
			return "Envoy has not connected again"
		}
		return ""
	})
	third := startPlane(t, a, leadsTo(port, "c6", one)...)
	eventually(t, third.settled)
	if got := third.toEnvoy(); len(got) > 0 {
		t.Errorf("after a restart of the agent the control plane sent %q", got)
	}
	third.publish(leadsTo(port, "c7", two)...)
	reaches(t, port, "two")
	eventually(t, third.settled)
	sent, failures := done()
	if len(failures) > 0 {
		t.Errorf("%d of %d requests failed, for example: %v", len(failures), sent, failures[0])
	}
	t.Logf("%d requests", sent)

	// Envoy and agent start again while there is no control plane.
	third.stop()
	kill()
	restarted(t, r, c)
	realEnvoy(t, socket)
	reaches(t, port, "two")
}

// What a real Envoy rejects is shown with its words, here and at the control plane. A new Envoy
// has what the one before took.
func TestRealEnvoyRejects(t *testing.T) {
	t.Parallel()
	port, bad, one := uint32(testport.Free(t)), uint32(testport.Free(t)), backend(t, "one")
	socket := filepath.Join(folder(t), "xds.sock")
	p := startPlane(t, testport.Address(t), leadsTo(port, "c0", one)...)
	r := startRelay(t, testConfig(t, p.address), socket)
	kill := realEnvoy(t, socket)
	reaches(t, port, "one")
	p.publish(append(leadsTo(port, "c1", one), xdstest.BadListener("bad", bad))...)
	eventually(t, func() string {
		if got := r.Status().Rejected; len(got) != 1 || !strings.HasPrefix(got[0], "Listener bad: ") ||
			!strings.Contains(got[0], "no.such") {
			return fmt.Sprintf("rejected %q", got)
		}
		return p.settled()
	})
	p.stop()
	kill()
	realEnvoy(t, socket)
	reaches(t, port, "one")
	if got := r.Status().Rejected; len(got) > 0 {
		t.Errorf("the new Envoy rejects %q", got)
	}
}
