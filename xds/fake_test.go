package xds_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/ashore-mesh/ashore/internal/testport"
	"github.com/ashore-mesh/ashore/xds"
	"github.com/ashore-mesh/ashore/xds/resource"
	"github.com/ashore-mesh/ashore/xds/xdstest"
)

// connect runs a fake Envoy until the test ends or the function that it returns is called.
func connect(t *testing.T, e *xdstest.Envoy) (leave func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		if err := e.Run(ctx); err != nil && ctx.Err() == nil && status.Code(err) != codes.Unavailable {
			t.Errorf("stream: %v", err)
		}
	}()
	var once sync.Once
	leave = func() {
		once.Do(func() {
			cancel()
			<-done
		})
	}
	t.Cleanup(leave)
	return leave
}

// chain is a listener that leads by a route to a cluster.
func chain(i int, cluster string) []*resource.Resource {
	name := fmt.Sprint(i)
	return []*resource.Resource{xdstest.Listener("l"+name, uint32(20000+i), "r"+name), xdstest.Route("r"+name, cluster)}
}

// serving is a cluster and its endpoints.
func serving(name string, version time.Duration) []*resource.Resource {
	return []*resource.Resource{xdstest.Cluster(name, version*time.Second), xdstest.Endpoints(name, 1, 2)}
}

// has says what a fake Envoy lacks of one chain.
func has(e *xdstest.Envoy, clusters int, route, cluster string) string {
	cs := e.Clusters()
	switch {
	case len(cs) != clusters:
		return fmt.Sprintf("clusters %v, want %d", cs, clusters)
	case !cs[cluster].Active || cs[cluster].Warming:
		return fmt.Sprintf("cluster %s is not ready: %+v", cluster, cs[cluster])
	case !slices.Equal(e.Routes()[route], []string{cluster}):
		return fmt.Sprintf("routes %v, want %s to %s", e.Routes(), route, cluster)
	}
	return ""
}

// Everything that changes in one edit takes its turn, so that no listener ever leads nowhere; also
// when the client is slow to answer.
func TestMakeBeforeBreak(t *testing.T) {
	t.Parallel()
	p := newPlane(t, nil, testport.Address(t), nil)
	e := xdstest.NewEnvoy(xdstest.Config{Addr: p.addr, ID: xdstest.NodeID("web", "10.0.0.1"),
		Answer: func(string) { time.Sleep(time.Duration(rand.IntN(3)) * time.Millisecond) }})
	p.publish(slices.Concat(serving("c0", 1), chain(1, "c0"))...)
	connect(t, e)
	eventually(t, func() string { return has(e, 1, "r1", "c0") })
	for i := 1; i < 20; i++ {
		c := fmt.Sprint("c", i)
		p.publish(slices.Concat(serving(c, 1), chain(1, c))...)
		if i%3 == 0 {
			continue // the next change comes at once
		}
		eventually(t, func() string { return has(e, 1, "r1", c) })
	}
	for _, b := range e.Broken() {
		t.Error(b)
	}
}

// Clusters that warm withhold their acknowledgement; newer ones are sent all the same, and
// everything else.
func TestWarmingDoesNotBlock(t *testing.T) {
	t.Parallel()
	p := newPlane(t, nil, testport.Address(t), nil)
	e := xdstest.NewEnvoy(xdstest.Config{Addr: p.addr, ID: xdstest.NodeID("web", "10.0.0.1")})
	p.publish(slices.Concat(serving("a", 1), chain(1, "a"))...)
	connect(t, e)
	eventually(t, func() string { return has(e, 1, "r1", "a") })
	for v := range 30 { // the same cluster changes faster than it warms
		p.publish(slices.Concat(serving("a", time.Duration(v+2)), serving(fmt.Sprint("b", v), 1), chain(1, "a"))...)
	}
	eventually(t, func() string {
		if m := has(e, 2, "r1", "a"); m != "" {
			return m
		}
		return latest(p.server)
	})
}

// A cluster of which no endpoint is known is answered, or it would warm until its timeout.
func TestUnknownEndpoints(t *testing.T) {
	t.Parallel()
	p := newPlane(t, nil, testport.Address(t), nil)
	e := xdstest.NewEnvoy(xdstest.Config{Addr: p.addr, ID: xdstest.NodeID("web", "10.0.0.1")})
	p.publish(xdstest.Cluster("a", time.Second))
	connect(t, e)
	eventually(t, func() string {
		if c := e.Clusters()["a"]; !c.Active || c.Warming || c.Endpoints != 0 {
			return fmt.Sprintf("cluster a is %+v", c)
		}
		return latest(p.server)
	})
}

// Whatever is rejected, lost and repaired on the way, an Envoy ends with what is configured.
func TestRejectionsAndReconnects(t *testing.T) {
	t.Parallel()
	for seed := range uint64(6) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			rng := rand.New(rand.NewPCG(seed, 7))
			p := newPlane(t, nil, testport.Address(t), nil)
			var mu sync.Mutex
			bad := map[string]bool{}
			e := xdstest.NewEnvoy(xdstest.Config{Addr: p.addr, ID: xdstest.NodeID("web", "10.0.0.1"),
				Reject: func(_, name string, _ []byte) string {
					mu.Lock()
					defer mu.Unlock()
					if bad[name] {
						return "it is bad"
					}
					return ""
				}})
			leave := connect(t, e)
			var world []*resource.Resource
			for round := range 12 {
				world = nil
				mu.Lock()
				clear(bad)
				for i := range 6 {
					c := fmt.Sprintf("%s%d", []string{"x", "y"}[rng.IntN(2)], i)
					world = append(world, serving(c, time.Duration(1+rng.IntN(3)))...)
					world = append(world, chain(i, c)...)
					if rng.IntN(4) == 0 && round < 11 {
						bad[fmt.Sprint([]string{"l", "r"}[rng.IntN(2)], i)] = true
					}
				}
				mu.Unlock()
				if round == 11 { // nothing is bad any more, and everything changes
					for i := range world {
						if world[i].TypeURL == resource.ListenerType {
							world[i] = xdstest.Listener(world[i].Name, uint32(30000+i), "r"+world[i].Name[1:])
						}
					}
				}
				p.publish(world...)
				if rng.IntN(3) == 0 {
					leave()
					leave = connect(t, e)
				}
				time.Sleep(time.Duration(rng.IntN(8)) * time.Millisecond)
			}
			leave()
			connect(t, e)
			eventually(t, func() string {
				if m := latest(p.server); m != "" {
					return m
				}
				for _, r := range world {
					if r.TypeURL == resource.RouteType && !slices.Equal(e.Routes()[r.Name], []string{r.Refs[0].Name}) {
						return fmt.Sprintf("route %s leads to %v, want %v", r.Name, e.Routes()[r.Name], r.Refs)
					}
					if r.TypeURL == resource.ClusterType && (!e.Clusters()[r.Name].Active ||
						e.Clusters()[r.Name].Endpoints != 2) {
						return fmt.Sprintf("cluster %s is %+v", r.Name, e.Clusters()[r.Name])
					}
				}
				if n := len(e.Clusters()); n != 6 {
					return fmt.Sprintf("%d clusters, want 6", n)
				}
				return ""
			})
		})
	}
}

// A fleet that comes back all at once is served, everybody, and sent nothing.
func TestStorm(t *testing.T) {
	t.Parallel()
	p := newPlane(t, nil, testport.Address(t), func(c *xds.Config) { c.Admissions = 1 })
	world := slices.Concat(serving("a", 1), chain(1, "a"))
	p.publish(world...)
	var all []*xdstest.Envoy
	var leaves []func()
	for i := range 60 {
		e := xdstest.NewEnvoy(xdstest.Config{Addr: p.addr, ID: xdstest.NodeID(fmt.Sprint("web", i), "10.0.0.1")})
		all, leaves = append(all, e), append(leaves, connect(t, e))
	}
	settled := func() string {
		for _, e := range all {
			if m := has(e, 1, "r1", "a"); m != "" {
				return m
			}
		}
		if n := len(p.server.Proxies()); n != len(all) {
			return fmt.Sprintf("%d proxies, want %d", n, len(all))
		}
		return latest(p.server)
	}
	eventually(t, settled)
	for i, leave := range leaves {
		leave()
		leaves[i] = connect(t, all[i])
	}
	eventually(t, settled)
	for _, e := range all {
		for typeURL, n := range e.Received() {
			if n != 1 {
				t.Fatalf("received %d resources of %s, want 1", n, typeURL)
			}
		}
	}
}

// Before the first context a stream is refused, so that its client tries another replica.
func TestNotReady(t *testing.T) {
	t.Parallel()
	p := newPlane(t, nil, testport.Address(t), nil)
	err := xdstest.NewEnvoy(xdstest.Config{Addr: p.addr, ID: xdstest.NodeID("web", "10.0.0.1")}).Run(t.Context())
	if status.Code(err) != codes.Unavailable {
		t.Errorf("got %v, want Unavailable", err)
	}
}

// A client that cannot be served hears why.
func TestBadNodes(t *testing.T) {
	t.Parallel()
	p := newPlane(t, nil, testport.Address(t), func(c *xds.Config) {
		c.Log = c.Log.Named("bad")
	})
	p.publish()
	for id, want := range map[string]codes.Code{
		"":                       codes.InvalidArgument,
		"sidecar~10.0.0.1~a":     codes.InvalidArgument,
		"sidecar~10.0.0.1~a~b~c": codes.InvalidArgument,
		"cart~10.0.0.1~a~b":      codes.InvalidArgument,
		"sidecar~nowhere~a~b":    codes.InvalidArgument,
		"waypoint~10.0.0.1~a~b":  codes.InvalidArgument,
	} {
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		err := xdstest.NewEnvoy(xdstest.Config{Addr: p.addr, ID: id}).Run(ctx)
		cancel()
		if status.Code(err) != want || errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("node %q: got %v, want %v", id, err, want)
		}
	}
}
