package agent

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/ashore-mesh/ashore/internal/testport"
	"github.com/ashore-mesh/ashore/xds"
	"github.com/ashore-mesh/ashore/xds/resource"
	"github.com/ashore-mesh/ashore/xds/xdstest"
)

// Whatever is rejected, lost and repaired on the way, whoever goes away and comes back, Envoy ends with what is configured, and
// the control plane knows it.
func TestProxyConverges(t *testing.T) {
	t.Parallel()
	bothProtocols(t, func(t *testing.T, delta bool) {
		for seed := range uint64(6) {
			t.Run(fmt.Sprint(seed), func(t *testing.T) {
				t.Parallel()
				converge(t, delta, rand.New(rand.NewPCG(seed, 11)))
			})
		}
	})
}

func converge(t *testing.T, delta bool, rng *rand.Rand) {
	a, b := testport.Address(t), testport.Address(t)
	addresses, at := []string{a, b}, 0
	world, bad := randomWorld(rng, false)
	r := startReplica(t, a, world...)
	socket, dir := filepath.Join(stateFolder(t), "xds.sock"), filepath.Join(t.TempDir(), "copy")
	p := startProxyAt(t, socket, withCopy(dir), a, b)
	var mu sync.Mutex
	current := bad
	config := func(c *xdstest.Config) {
		c.Reject = func(_, name string, body []byte) string {
			mu.Lock()
			defer mu.Unlock()
			if current[name+string(body)] {
				return name + " is bad"
			}
			return ""
		}
	}
	e := fakeEnvoy(p, delta, config)
	leave := envoyOn(t, e)
	const rounds = 12
	for round := range rounds {
		last := round == rounds-1
		world, bad = randomWorld(rng, last)
		mu.Lock()
		current = bad
		mu.Unlock()
		r.publish(world...)
		switch rng.IntN(6) {
		case 0: // Envoy loses its stream
			leave()
			leave = envoyOn(t, e)
		case 1: // another Envoy
			leave()
			e = fakeEnvoy(p, delta, config)
			leave = envoyOn(t, e)
		case 2: // another replica
			r.stop()
			at = 1 - at
			r = startReplica(t, addresses[at], world...)
		case 3: // another agent, on a copy or without one
			p.stop()
			if rng.IntN(2) == 0 {
				if err := os.RemoveAll(dir); err != nil {
					t.Fatal(err)
				}
			}
			p = startProxyAt(t, socket, withCopy(dir), a, b)
		}
		time.Sleep(time.Duration(rng.IntN(15)) * time.Millisecond)
	}
	becomesTrue(t, func() string {
		if m := r.latest(); m != "" {
			return m
		}
		if got := r.refusals(); len(got) > 0 {
			return fmt.Sprintf("refusals %q", got)
		}
		return matches(e, world)
	})
	if s := p.Status(); s.Refused > 0 {
		t.Errorf("status says %q", s.Words)
	}
}

// randomWorld is a configuration, and what an Envoy is to reject of it, by name and body; nothing when it is the last one, in
// which everything differs from all before.
func randomWorld(rng *rand.Rand, last bool) (world []*resource.Resource, bad map[string]bool) {
	bad = map[string]bool{}
	for i := range 6 {
		c, port := fmt.Sprintf("%s%d", []string{"x", "y"}[rng.IntN(2)], i), uint32(20000+i+10*rng.IntN(3))
		if last {
			c, port = fmt.Sprint("z", i), uint32(30000+i)
		}
		listener, route := xdstest.Listener(fmt.Sprint("l", i), port, fmt.Sprint("r", i)), xdstest.Route(fmt.Sprint("r", i), c)
		world = append(world, xdstest.Cluster(c, time.Duration(1+rng.IntN(3))*time.Second), xdstest.Endpoints(c, 1, 2), listener, route)
		if r := []*resource.Resource{listener, route}[rng.IntN(2)]; rng.IntN(4) == 0 && !last {
			bad[r.Name+string(r.Body())] = true
		}
	}
	return world, bad
}

// matches says how an Envoy differs from a configuration.
func matches(e *xdstest.Envoy, world []*resource.Resource) string {
	clusters := 0
	for _, r := range world {
		switch r.TypeURL {
		case xds.RouteType:
			if got := e.Routes()[r.Name]; !slices.Equal(got, []string{r.Refs[0].Name}) {
				return fmt.Sprintf("route %s leads to %v, want %v", r.Name, got, r.Refs)
			}
		case xds.ClusterType:
			clusters++
			if c := e.Clusters()[r.Name]; !c.Active || c.Warming || c.Endpoints != 2 {
				return fmt.Sprintf("cluster %s is %+v", r.Name, c)
			}
		}
	}
	if n := len(e.Clusters()); n != clusters {
		return fmt.Sprintf("%d clusters, want %d", n, clusters)
	}
	return ""
}
