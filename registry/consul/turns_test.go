package consul

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptrace"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/consul/api"

	"github.com/ashore-mesh/ashore/internal/lastgood"
	"github.com/ashore-mesh/ashore/registry"
)

// narrow is a Consul with a service web in each of its datacenters, whose waits end when what they are about changes, behind so many
// connections as its capacity is.
type narrow struct {
	connections chan struct{}

	mu    sync.Mutex
	down  map[string]chan struct{} // guarded by mu: by datacenter, closed when web is critical there
	asked int                      // guarded by mu
}

func newNarrow(connections int) *narrow {
	return &narrow{connections: make(chan struct{}, connections), down: map[string]chan struct{}{}}
}

// goesDown is closed when web is critical in a datacenter.
func (n *narrow) goesDown(dc string) chan struct{} {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.asked++
	if n.down[dc] == nil {
		n.down[dc] = make(chan struct{})
	}
	return n.down[dc]
}

func (n *narrow) RoundTrip(r *http.Request) (*http.Response, error) {
	select {
	case n.connections <- struct{}{}:
		defer func() { <-n.connections }()
	case <-r.Context().Done():
		return nil, r.Context().Err()
	}
	q, down := r.URL.Query(), n.goesDown(r.URL.Query().Get("dc"))
	about := down
	if strings.HasPrefix(r.URL.Path, "/v1/catalog/") || r.URL.Path == "/v1/health/state/warning" {
		about = nil // nothing changes
	}
	wait, err := time.ParseDuration(q.Get("wait"))
	if waits := err == nil && (q.Get("index") == "11" || q.Get("index") == "10" && !isClosed(about)); waits {
		select {
		case <-about:
		case <-time.After(wait):
		case <-r.Context().Done():
			return nil, r.Context().Err()
		}
	}
	if trace := httptrace.ContextClientTrace(r.Context()); trace != nil {
		trace.GotFirstResponseByte()
	}
	index, state, failing := uint64(10), api.HealthPassing, ""
	if isClosed(about) {
		index, state, failing = 11, api.HealthCritical, `{"Node":"n","CheckID":"c","ServiceName":"web","Status":"critical","ModifyIndex":11}`
	}
	body := `[]`
	switch {
	case r.URL.Path == "/v1/catalog/services":
		body = `{"web":[]}`
	case strings.HasPrefix(r.URL.Path, "/v1/catalog/node/"):
		body = `null`
	case r.URL.Path == "/v1/health/service/consul":
		body = `[{"Node":{"Node":"s","Address":"10.0.0.9","Datacenter":"dc1"},"Service":{"ID":"consul","Service":"consul","Port":8300}}]`
	case r.URL.Path == "/v1/health/state/critical":
		body = "[" + failing + "]"
	case r.URL.Path == "/v1/health/service/web" && q.Get("filter") != nothing:
		body = fmt.Sprintf(`[{"Node":{"Node":"n","Address":"10.0.0.1","Datacenter":"dc"},"Service":{"ID":"1","Service":"web","Port":80},"Checks":[{"Node":"n","CheckID":"c","Status":%q}]}]`, state)
	}
	return resp(r, 200, index, false, body), nil
}

func isClosed(c chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// An instance that becomes critical is heard of soon, however many places the settings name for how few connections; that they
// take turns is told where they do. An idle Consul is asked little.
func TestManyPlaces(t *testing.T) {
	t.Parallel()
	for places, turns := range map[int]bool{3: false, 18: false, 19: true, 50: true} {
		t.Run(fmt.Sprint(places), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				var datacenters []string
				for i := range places {
					datacenters = append(datacenters, fmt.Sprintf("x%d", i))
				}
				n := newNarrow(100)
				f := lookOver(t, n, Options{Datacenters: datacenters}, lastgood.Config[registry.Instances]{})
				defer f.end()
				time.Sleep(10 * time.Minute)
				if got := f.tells("are asked by turns") == 1; got != turns || len(f.problems()) > 1 {
					t.Errorf("turns are told of: %v, want %v; problems: %v", got, turns, f.problems())
				}
				n.mu.Lock()
				before := n.asked
				n.mu.Unlock()
				time.Sleep(10 * time.Minute)
				n.mu.Lock()
				if got, most := n.asked-before, 10*60*100; got > most {
					t.Errorf("asked %d questions in 10 minutes, want at most %d", got, most)
				}
				n.mu.Unlock()
				for _, dc := range datacenters {
					close(n.goesDown(dc))
				}
				time.Sleep(time.Minute)
				for _, dc := range datacenters {
					if got := f.state("web.service." + dc + ".consul"); got != "unhealthy" {
						t.Errorf("a minute after it became critical in %s it is %q", dc, got)
					}
				}
			})
		})
	}
}

// How late changes are heard of where places take turns is told, and is so.
func TestLateByTurns(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		places, connections int
		late                time.Duration
	}{{19, 100, 10 * time.Second}, {50, 100, 10 * time.Second}, {4, 8, 10 * time.Second}, {20, 8, 13 * time.Second}, {50, 8, 33 * time.Second}} {
		t.Run(fmt.Sprint(tc), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				var datacenters []string
				for i := range tc.places {
					datacenters = append(datacenters, fmt.Sprintf("x%d", i))
				}
				n := newNarrow(tc.connections)
				f := lookOver(t, n, Options{Datacenters: datacenters, Connections: tc.connections}, lastgood.Config[registry.Instances]{})
				defer f.end()
				time.Sleep(10 * time.Minute)
				if f.tells(fmt.Sprintf("may be heard of up to some %s late", tc.late)) != 1 {
					t.Errorf("problems: %v", f.problems())
				}
				latest := time.Duration(0)
				for i, dc := range datacenters {
					began := time.Now()
					close(n.goesDown(dc))
					for f.state("web.service."+dc+".consul") != "unhealthy" {
						if time.Sleep(100 * time.Millisecond); time.Since(began) > time.Hour {
							t.Fatal("waited in vain")
						}
					}
					latest = max(latest, time.Since(began))
					time.Sleep(time.Duration(i) * 370 * time.Millisecond) // at any time of a round
				}
				t.Logf("the latest came after %v", latest)
				if most := tc.late + tc.late/4 + time.Second; latest > most { // who is not interrupted leaves gaps, and services are asked for besides
					t.Errorf("the latest came after %v", latest)
				}
			})
		})
	}
}

// Connections are taken by who came first, are given back by who does not wait any more, and serve as many as there are.
func TestTurns(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var q turns
		if q.bound(2, 2) || !q.bound(2, 6) || q.bound(2, 7) {
			t.Error("it says otherwise when turns begin")
		}
		var mu sync.Mutex
		var got []int
		ctx, cancel := context.WithCancel(t.Context())
		for i := range 6 {
			ctx := map[bool]context.Context{true: ctx, false: t.Context()}[i == 3]
			go func() {
				_, err := q.take(ctx)
				mu.Lock()
				defer mu.Unlock()
				if errors.Is(err, context.Canceled) {
					i = -i
				}
				got = append(got, i)
			}()
			synctest.Wait()
		}
		is := func(what, want string) {
			t.Helper()
			synctest.Wait()
			mu.Lock()
			defer mu.Unlock()
			if s := fmt.Sprint(got); s != want {
				t.Errorf("%s: %s have gone on, want %s", what, s, want)
			}
		}
		is("two connections", "[0 1]")
		q.give()
		is("one is given back", "[0 1 2]")
		cancel()
		is("one waits no more", "[0 1 2 -3]")
		q.bound(3, 6)
		is("there is one more", "[0 1 2 -3 4]")
		q.bound(1, 6)
		q.give()
		q.give()
		is("there are fewer", "[0 1 2 -3 4]")
		q.give()
		is("all others are given back", "[0 1 2 -3 4 5]")
		q.give()
		if q.used != 0 || len(q.queue) != 0 {
			t.Errorf("%d are taken and %d wait, want none", q.used, len(q.queue))
		}
		for _, step := range []struct {
			most, wanted int
			want, late   time.Duration
		}{{4, 4, longWait, 0}, {5, 10, turn / 2, turn}, {1, 1000, leastTurn, 1000 * leastTurn}} {
			q.bound(step.most, step.wanted)
			if got, late := q.round(); got != step.want || late != step.late {
				t.Errorf("%d connections for %d queries: they wait %v of %v, want %v of %v", step.most, step.wanted, got, late, step.want, step.late)
			}
		}
	})
}
