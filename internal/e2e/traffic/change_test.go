package traffic

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/ashore-mesh/ashore/internal/admin"
	"github.com/ashore-mesh/ashore/internal/e2e/harness"
)

// underLoad starts a mesh with one service on v1, and a load on it that must stay clean.
func underLoad(t *testing.T) (m *harness.Mesh, p *harness.Proxy, v1 *harness.Backend, load *harness.Load) {
	t.Helper()
	m = harness.New(t, nil)
	v1 = backend(t, m, "v1")
	m.Write("web.yaml", service("web.test", at(v1)))
	p = m.Proxy(harness.Workload{Name: "client"})
	client := p.Client(port)
	client.Want(t, "web answers", harness.Request{Host: "web.test"}, harness.From("v1"))
	return m, p, v1, harness.StartLoad(t, client, harness.Request{Host: "web.test"})
}

// more waits until the load has made n more calls.
func more(t *testing.T, load *harness.Load, n int) {
	t.Helper()
	want := load.Total() + n
	harness.Eventually(t, "the load goes on", func() error {
		if got := load.Total(); got < want {
			return fmt.Errorf("%d calls, waiting for %d", got, want)
		}
		return nil
	})
}

// An endpoint comes and goes under load, and no request fails: it drains while the others continue.
func TestEndpointComesAndGoes(t *testing.T) {
	t.Parallel()
	m, _, v1, load := underLoad(t)
	for range 5 {
		v2 := backend(t, m, "v2")
		m.Write("web.yaml", service("web.test", at(v1), at(v2)))
		harness.Eventually(t, "v2 gets requests", func() error {
			if v2.Requests() == 0 {
				return fmt.Errorf("none yet")
			}
			return nil
		})
		m.Write("web.yaml", service("web.test", at(v1)))
		harness.Eventually(t, "v2 gets no more requests", func() error {
			before := v2.Requests()
			more(t, load, 100)
			if n := v2.Requests() - before; n > 0 {
				return fmt.Errorf("%d more", n)
			}
			return nil
		})
		if err := v2.Drain(); err != nil {
			t.Errorf("drain v2: %v", err)
		}
	}
	load.Clean(t, 1000)
}

// ashored is killed and started again under load: no request fails, and the Envoys that come back
// are sent nothing that they have. Their own counters prove it.
func TestControlPlaneKilled(t *testing.T) {
	t.Parallel()
	m, p, _, load := underLoad(t)
	counters := []string{
		"cluster_manager.cds.update_success", "listener_manager.lds.update_success", "cluster_manager.cluster_added",
		"cluster_manager.cluster_modified", "cluster_manager.cluster_removed", "listener_manager.listener_added", "listener_manager.listener_modified",
	}
	more(t, load, 200)
	before := map[string]int{}
	for _, c := range counters {
		before[c] = p.Stat(c)
	}
	m.Ashored.Kill()
	more(t, load, 300)
	m.Start()
	harness.Eventually(t, "Envoy is connected again", func() error {
		status, err := admin.Send(context.Background(), m.Admin, admin.CallStatus, admin.None{})
		if err == nil && len(status.Proxies) == 0 {
			err = errors.New("it is not")
		}
		return err
	})
	more(t, load, 300)
	for _, c := range counters {
		if got := p.Stat(c); got != before[c] {
			t.Errorf("%s: %d after the restart, %d before: something was sent again", c, got, before[c])
		}
	}
	// it is served, not only connected
	b := backend(t, m, "new")
	m.Write("new.yaml", service("new.test", at(b)))
	p.Client(port).Want(t, "a service that was added after the restart", harness.Request{Host: "new.test"},
		harness.From("new"))
	load.Clean(t, 800)
}

// A new service and a route to it come in one edit, and go in one edit: no request fails, because
// the route follows the cluster and the cluster outlives the route.
func TestServiceAndRouteInOneEdit(t *testing.T) {
	t.Parallel()
	m, _, v1, load := underLoad(t)
	for i := range 5 {
		b := backend(t, m, "other")
		host := fmt.Sprintf("other%d.test", i)
		m.Write("web.yaml", service("web.test", at(v1))+"---\n"+service(host, at(b))+
			routes("web.test", "  - route: [{destination: {host: "+host+"}}]\n"))
		harness.Eventually(t, "the new service gets requests", func() error {
			if b.Requests() == 0 {
				return fmt.Errorf("none yet")
			}
			return nil
		})
		more(t, load, 50)
		m.Write("web.yaml", service("web.test", at(v1)))
		harness.Eventually(t, "the old one gets them again", func() error {
			before := b.Requests()
			more(t, load, 50)
			if n := b.Requests() - before; n > 0 {
				return fmt.Errorf("%d more for the new one", n)
			}
			return nil
		})
	}
	load.Clean(t, 500)
}

// Traffic shifts between versions by one edited line, again and again, and no request fails.
func TestShift(t *testing.T) {
	t.Parallel()
	m, p, v1, load := underLoad(t)
	v2 := backend(t, m, "v2")
	shift := func(first, second int) {
		m.Write("web.yaml", service("web.test", at(v1), at(v2))+subsets("web.test", "")+routes("web.test",
			fmt.Sprintf("  - route: [{destination: {host: HOST, subset: v1}, weight: %d}, {destination: {host: HOST, subset: v2}, weight: %d}]\n", first, second)))
	}
	client := p.Client(port)
	for range 3 {
		shift(0, 100)
		client.Want(t, "all to v2", harness.Request{Host: "web.test"}, harness.From("v2"))
		more(t, load, 50)
		shift(100, 0)
		client.Want(t, "all to v1", harness.Request{Host: "web.test"}, harness.From("v1"))
		more(t, load, 50)
	}
	load.Clean(t, 300)
}

// A change reaches Envoy and takes effect while other changes continue: the sanity of the
// measurements above. Every request is counted.
func TestLoadCountsFailures(t *testing.T) {
	t.Parallel()
	_, _, v1, load := underLoad(t)
	more(t, load, 50)
	v1.Fail.Store(true)
	more(t, load, 50)
	v1.Fail.Store(false)
	load.Stop()
	if load.Failures() == 0 {
		t.Error("the backend failed and no request did: the load cannot see a failure")
	}
}
