package consul

import (
	"net/http"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/consul/api"

	"github.com/ashore-mesh/ashore/internal/lastgood"
	"github.com/ashore-mesh/ashore/registry"
)

// A bound that shrank because Consul refused grows again when it refuses no more, and more slowly each time that this was too
// early.
func TestGrow(t *testing.T) {
	t.Parallel()
	now := time.Now()
	s := newSlots(100)
	step := func(after time.Duration, grown bool, want int) {
		t.Helper()
		now = now.Add(after)
		if got := s.grow(now); got != grown || s.connections != want {
			t.Errorf("after %s: %v and %d connections, want %v and %d", after, got, s.connections, grown, want)
		}
	}
	refuse := func(want int) {
		t.Helper()
		now = now.Add(2 * refusalGap)
		if s.refused(now); s.connections != want {
			t.Errorf("%d connections after a refusal, want %d", s.connections, want)
		}
	}
	step(time.Hour, false, 100)
	refuse(75)
	refuse(56)
	step(growAfter-time.Second, false, 56)
	step(time.Second, true, 70)
	step(growAfter/2, false, 70)
	step(growAfter/2, true, 87)
	refuse(65)
	step(growAfter, false, 65)
	step(growAfter, true, 81)
	step(2*growAfter, true, 100)
	step(24*time.Hour, false, 100)
	for range 20 {
		refuse(max(leastConnections, s.connections*3/4))
	}
	step(lastGrowth, true, leastConnections+leastConnections/4)
}

// Where there is room for all services, each has a connection at once, though one that has gone has not given its own back yet:
// nobody would tell who waits for one.
func TestRoomForAll(t *testing.T) {
	t.Parallel()
	s := newSlots(100)
	for _, step := range []struct {
		services int
		changed  bool
		want     bool
	}{{88, false, true}, {89, true, false}, {88, false, true}} {
		s.crowd(step.services, 1, false)
		s.mu.Lock()
		s.used = s.room // one of them of a service that has gone
		s.mu.Unlock()
		if _, ok := s.take(step.changed); ok != step.want {
			t.Errorf("with %d services and all connections taken: %v, want %v", step.services, ok, step.want)
		}
	}
}

// How many questions are asked at once follows how many connections Consul takes, and how many places there are by now.
func TestFew(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := newCatalogs(numbered(200)...) // a crowd
		c.services["dc2/web"], c.services["dc3/web"] = api.HealthPassing, api.HealthPassing
		var mu sync.Mutex
		at, most, known, busy := 0, 0, `["dc1"]`, false
		o := &over{c: c, f: func(r *http.Request) *http.Response {
			mu.Lock()
			defer mu.Unlock()
			switch {
			case busy:
				return resp(r, http.StatusTooManyRequests, 0, false, "Your IP is issuing too many concurrent connections")
			case r.URL.Path == "/v1/catalog/datacenters":
				return resp(r, http.StatusOK, 1, false, known)
			case r.URL.Query().Has("index") || r.URL.Query().Has("dc") || !ofService("", r.URL.Path):
				return nil
			}
			at++
			most = max(most, at)
			mu.Unlock()
			time.Sleep(100 * time.Millisecond)
			mu.Lock()
			at--
			return nil
		}}
		f := lookOver(t, o, Options{Datacenters: []string{"*"}}, lastgood.Config[registry.Instances]{})
		defer f.end()
		set := func(f func()) {
			mu.Lock()
			defer mu.Unlock()
			f()
		}
		is := func(when string, want int) {
			t.Helper()
			time.Sleep(time.Minute)
			set(func() { most = 0 })
			c.change(func() { c.services["new "+when] = api.HealthPassing }) // so that all are looked at
			time.Sleep(time.Minute)
			set(func() {
				if most != want {
					t.Errorf("%s %d are asked at once, want %d", when, most, want)
				}
			})
		}
		is("alone", keeping)
		set(func() { known = `["dc1","dc2","dc3"]` })
		is("with others", keepingOf(100, 3))
		set(func() { busy = true })
		time.Sleep(2 * time.Minute)
		set(func() { busy = false })
		is("with few connections", leastKeeping)
	})
}
