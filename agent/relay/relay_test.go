package relay

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ashore-mesh/ashore/internal/testport"
	"github.com/ashore-mesh/ashore/xds/resource"
	"github.com/ashore-mesh/ashore/xds/xdstest"
)

// chain is a listener that leads by a route to a cluster with endpoints.
func chain(i int, cluster string) []*resource.Resource {
	return []*resource.Resource{xdstest.Cluster(cluster, time.Second), xdstest.Endpoints(cluster, 1, 2),
		xdstest.Listener(fmt.Sprint("l", i), uint32(20000+i), fmt.Sprint("r", i)), xdstest.Route(fmt.Sprint("r", i),
			cluster)}
}

// leads says what a fake Envoy lacks of one chain.
func leads(e *xdstest.Envoy, route, cluster string) string {
	c := e.Clusters()[cluster]
	switch {
	case !c.Active || c.Warming:
		return fmt.Sprintf("cluster %s is not ready: %+v", cluster, e.Clusters())
	case !slices.Equal(e.Routes()[route], []string{cluster}):
		return fmt.Sprintf("routes %v, want %s to %s", e.Routes(), route, cluster)
	}
	return ""
}

// Changes reach Envoy in the control plane's order, and only what changed is sent.
func TestLiveChanges(t *testing.T) {
	t.Parallel()
	p := startPlane(t, testport.Address(t), slices.Concat(chain(1, "c0"), chain(2, "other"))...)
	r := startRelay(t, testConfig(t, p.address), "")
	e := r.fakeEnvoy(nil)
	connect(t, e)
	eventually(t, func() string { return leads(e, "r1", "c0") })
	for i := 1; i < 10; i++ {
		c := fmt.Sprint("c", i)
		p.publish(slices.Concat(chain(1, c), chain(2, "other"))...)
		eventually(t, func() string { return leads(e, "r1", c) })
	}
	eventually(t, p.settled)
	for _, b := range e.Broken() {
		t.Error(b)
	}
	if n := e.Received()[resource.ListenerType]; n != 2 {
		t.Errorf("%d listeners were sent, want each once", n)
	}
	if s := r.Status(); s.Connected != p.address || len(s.Rejected) > 0 {
		t.Errorf("status %+v", s)
	}
}

// A control plane that comes back, or another one, sends nothing when nothing changed, and
// afterwards only what did.
func TestReconnect(t *testing.T) {
	t.Parallel()
	a, b := testport.Address(t), testport.Address(t)
	first := startPlane(t, a, chain(1, "c0")...)
	r := startRelay(t, testConfig(t, a, b), "")
	e := r.fakeEnvoy(nil)
	connect(t, e)
	eventually(t, func() string { return leads(e, "r1", "c0") })
	eventually(t, first.settled)

	first.stop()
	second := startPlane(t, b, chain(1, "c0")...)
	eventually(t, second.settled)
	if got := second.toEnvoy(); len(got) > 0 {
		t.Errorf("nothing changed, and %q were sent", got)
	}
	second.publish(chain(1, "c1")...)
	eventually(t, func() string { return leads(e, "r1", "c1") })
	eventually(t, second.settled)
	eventually(t, func() string {
		if got := e.Clusters(); len(got) != 1 {
			return fmt.Sprintf("clusters %v, want one", got)
		}
		return ""
	})
	for _, b := range e.Broken() {
		t.Error(b)
	}
}

// Envoy afterwards has the resources that changed while no control plane was reachable, also if it
// did not acknowledge the last responses.
func TestChangesDuringOutage(t *testing.T) {
	t.Parallel()
	address := testport.Address(t)
	first := startPlane(t, address, slices.Concat(chain(1, "c0"), chain(2, "gone"))...)
	r := startRelay(t, testConfig(t, address), "")
	var gate sync.RWMutex // while it is locked, Envoy handles nothing
	e := r.fakeEnvoy(func(c *xdstest.Config) {
		c.Answer = func(string) { gate.RLock(); defer gate.RUnlock() }
	})
	connect(t, e)
	eventually(t, first.settled)
	gate.Lock()
	unacknowledged := e.Received()[resource.ClusterType]
	first.publish(slices.Concat(chain(1, "c0"), chain(2, "gone"), chain(3, "added"))...)
	eventually(t, func() string {
		if e.Received()[resource.ClusterType] == unacknowledged {
			return "the new cluster was not sent"
		}
		return ""
	})
	first.stop()
	second := startPlane(t, address, chain(1, "c0")...)
	gate.Unlock()
	eventually(t, second.settled)
	eventually(t, func() string {
		if got := e.Clusters(); len(got) != 1 || len(e.Listeners()) != 1 {
			return fmt.Sprintf("clusters %v, listeners %v, want one of each", got, e.Listeners())
		}
		return leads(e, "r1", "c0")
	})
}

// What Envoy rejects reaches the control plane and is shown, and does not hold up the rest.
func TestRejected(t *testing.T) {
	t.Parallel()
	p := startPlane(t, testport.Address(t), chain(1, "c0")...)
	r := startRelay(t, testConfig(t, p.address), "")
	e := r.fakeEnvoy(func(c *xdstest.Config) {
		c.Reject = func(_, name string, _ []byte) string {
			if name == "bad" {
				return "no such filter"
			}
			return ""
		}
	})
	connect(t, e)
	eventually(t, func() string { return leads(e, "r1", "c0") })
	p.publish(slices.Concat(chain(1, "c0"), chain(2, "c2"), []*resource.Resource{xdstest.Listener("bad", 9, "r1")})...)
	eventually(t, func() string { return leads(e, "r2", "c2") })
	eventually(t, func() string {
		var refused []string
		for _, ty := range p.server.Proxies()[0].Types {
			for _, f := range ty.Rejected {
				refused = append(refused, f.Name)
			}
		}
		if got := r.Status().Rejected; fmt.Sprint(refused) != "[bad]" || len(got) != 1 ||
			!strings.HasPrefix(got[0], "Listener bad: ") || !strings.Contains(got[0], "no such filter") {
			return fmt.Sprintf("the control plane shows %q, the agent %q", refused, got)
		}
		return ""
	})
	p.publish(slices.Concat(chain(1, "c0"), chain(2, "c2"))...)
	eventually(t, func() string {
		if got := r.Status().Rejected; len(got) > 0 {
			return fmt.Sprintf("still shown: %q", got)
		}
		return ""
	})
}

// restarted stops a relay, which writes its cache file, and starts another one in its place.
func restarted(t *testing.T, r *running, c Config) *running {
	t.Helper()
	r.stop()
	return startRelay(t, c, strings.TrimPrefix(r.socket, "unix:"))
}

// A relay that starts while no control plane is reachable gives a new Envoy everything. An Envoy
// that keeps running is sent nothing, with a control plane, and without one and a cache.
func TestCacheServes(t *testing.T) {
	t.Parallel()
	p := startPlane(t, testport.Address(t), slices.Concat(chain(1, "c0"), chain(2, "c2"))...)
	c := testConfig(t, p.address)
	c.CacheFile = filepath.Join(t.TempDir(), "cache")
	r := startRelay(t, c, "")
	e := r.fakeEnvoy(nil)
	leave := connect(t, e)
	eventually(t, p.settled)
	p.publish(chain(1, "c0")...) // a part goes again
	eventually(t, func() string {
		if len(e.Clusters()) != 1 {
			return "two clusters"
		}
		return p.settled()
	})
	leave()
	p.stop()

	r = restarted(t, r, c)
	if info, err := os.Stat(c.CacheFile); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("cache file: %v, %v; want mode 0600", info, err)
	}
	e = r.fakeEnvoy(nil)
	connect(t, e)
	eventually(t, func() string { return leads(e, "r1", "c0") })
	eventually(t, func() string {
		if s := r.Status(); s.Confirmed.IsZero() || s.Connected != "" || s.Problem == "" {
			return fmt.Sprintf("status %+v", s)
		}
		return ""
	})
	if len(e.Clusters()) != 1 || len(e.Listeners()) != 1 {
		t.Errorf("clusters %v, listeners %v, want what was acknowledged last", e.Clusters(), e.Listeners())
	}
	received := fmt.Sprint(e.Received())

	r = restarted(t, r, c)
	again := startPlane(t, p.address, chain(1, "c0")...)
	eventually(t, again.settled)
	if got := fmt.Sprint(e.Received()); got != received {
		t.Errorf("a running Envoy received %s, before the agent's restart %s", got, received)
	}
	again.stop()

	c.CacheFile = filepath.Join(t.TempDir(), "another")
	r = restarted(t, r, c)
	eventually(t, func() string {
		r.mu.Lock()
		defer r.mu.Unlock()
		if len(r.sessions) == 0 || len(r.sessions[0].subs) < 4 {
			return "Envoy has not asked for everything"
		}
		return ""
	})
	if got := fmt.Sprint(e.Received()); got != received || leads(e, "r1", "c0") != "" {
		t.Errorf("without a cache Envoy received %s, before %s", got, received)
	}
}

// A new Envoy is served from memory while the control plane is away.
func TestEnvoyRestartDuringOutage(t *testing.T) {
	t.Parallel()
	p := startPlane(t, testport.Address(t), chain(1, "c0")...)
	r := startRelay(t, testConfig(t, p.address), "")
	leave := connect(t, r.fakeEnvoy(nil))
	eventually(t, p.settled)
	p.stop()
	leave()
	e := r.fakeEnvoy(nil)
	connect(t, e)
	eventually(t, func() string { return leads(e, "r1", "c0") })
}

// A cluster that went while Envoy was away does not come back from the cache.
func TestNewEnvoy(t *testing.T) {
	t.Parallel()
	p := startPlane(t, testport.Address(t), slices.Concat(chain(1, "c0"), chain(2, "gone"))...)
	r := startRelay(t, testConfig(t, p.address), "")
	leave := connect(t, r.fakeEnvoy(nil))
	eventually(t, p.settled)
	leave()
	p.publish(chain(1, "c0")...)
	connect(t, r.fakeEnvoy(nil))
	for typeURL, want := range map[string]string{resource.ClusterType: "[c0]", resource.EndpointType: "[c0]",
		resource.ListenerType: "[l1]", resource.RouteType: "[r1]"} {
		eventually(t, func() string {
			held, _, err := r.cache.reply(typeURL, everything)
			if err != nil {
				return err.Error()
			}
			if got := fmt.Sprint(itemNames(held)); got != want {
				return fmt.Sprintf("%s: the cache has %s, want %s", typeURL, got, want)
			}
			return ""
		})
	}
}

// The cache file is written again after a failure, which is shown.
func TestCacheError(t *testing.T) {
	t.Parallel()
	p := startPlane(t, testport.Address(t), chain(1, "c0")...)
	c := testConfig(t, p.address)
	c.CacheFile = filepath.Join(t.TempDir(), "missing", "cache")
	r := startRelay(t, c, "")
	connect(t, r.fakeEnvoy(nil))
	eventually(t, p.settled)
	if r.save() || !strings.Contains(r.Status().CacheError, "missing") {
		t.Errorf("status %+v", r.Status())
	}
	if err := os.Mkdir(filepath.Dir(c.CacheFile), 0o700); err != nil {
		t.Fatal(err)
	}
	if !r.save() || r.Status().CacheError != "" {
		t.Errorf("status %+v", r.Status())
	}
}
