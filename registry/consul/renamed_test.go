package consul

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/consul/api"

	"github.com/ashore-mesh/ashore/internal/lastgood"
	"github.com/ashore-mesh/ashore/registry"
)

// A service is asked for when another one has an instance that it had: whoever waits for its change waits in vain.
func TestClaim(t *testing.T) {
	t.Parallel()
	sc := newScope(place{}, 1)
	for _, name := range []string{"old", "new"} {
		sc.services[name] = sc.newService(name)
	}
	before, after := sc.services["old"], sc.services["new"]
	asked := func(s *service) bool {
		ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		defer cancel()
		whole, atLeast, ok := s.pokes.wait(ctx)
		return ok && whole && atLeast == 1 && s.stop.interrupted()
	}
	a, b, c := instanceID{"n1", "a"}, instanceID{"n1", "b"}, instanceID{"n2", "a"}
	sc.claim(before, nil, []instanceID{a, b})
	if asked(before) || asked(after) {
		t.Error("new instances have somebody asked for")
	}
	sc.claim(after, nil, []instanceID{b, c})
	if !asked(before) || asked(after) {
		t.Error("the one that had it is not asked for, or the other one is")
	}
	sc.claim(before, []instanceID{a, b}, []instanceID{a})
	sc.claim(after, []instanceID{b, c}, nil)
	sc.claim(before, []instanceID{a}, []instanceID{a, b})
	if asked(before) || asked(after) || len(sc.bearers) != 2 {
		t.Errorf("what has left has somebody asked for: %v", sc.bearers)
	}
	delete(sc.services, "old")
	sc.claim(after, nil, []instanceID{a})
	if asked(after) || sc.bearers[a] != "new" {
		t.Errorf("one that is gone counts: %v", sc.bearers)
	}
}

// A service is called by the name that it was registered by, whatever is in that.
func TestObject(t *testing.T) {
	t.Parallel()
	for want, tc := range map[string]struct {
		at   place
		name string
	}{
		"Consul service web":          {place{}, "web"},
		"Consul service dc2/team/a/b": {place{Datacenter: "dc2", Namespace: "team"}, "a/b"},
		"Consul service x%2Fy":        {place{}, "x%2Fy"},
	} {
		if got := tc.at.object(tc.name); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}

// Where an instance takes another name no index changes: what an agent remembers of before takes nothing back that the leader said.
func TestOfBeforeTheClaim(t *testing.T) {
	t.Parallel()
	for _, reads := range []string{readsStale, readsCached} {
		t.Run(reads, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				c := newCatalogs("web")
				f := lookOver(t, &over{c: c, f: func(r *http.Request) *http.Response {
					q := r.URL.Query()
					name, ok := strings.CutPrefix(r.URL.Path, "/v1/health/service/")
					if !ok {
						return nil
					}
					if wait, err := time.ParseDuration(q.Get("wait")); err == nil && q.Get("index") == "10" {
						select {
						case <-time.After(wait):
						case <-r.Context().Done():
						}
					}
					c.mu.Lock()
					_, renamed := c.services["new"]
					c.mu.Unlock()
					at := func(i int) string {
						return fmt.Sprintf(`{"Node":{"Node":"n%d","Address":"10.0.0.%d","Datacenter":"dc1"},"Service":{"ID":"%d","Service":%q,"Port":80}}`, i, i, i, name)
					}
					body := at(1) + "," + at(2)
					switch {
					case name == "new":
						body = at(2)
					case renamed && !q.Has("stale") && !q.Has("cached"): // the leader
						body = at(1)
					}
					return resp(r, 200, 10, false, "["+body+"]")
				}}, Options{Reads: reads}, lastgood.Config[registry.Instances]{})
				defer f.end()
				count := func() int {
					synctest.Wait()
					f.mu.Lock()
					defer f.mu.Unlock()
					return len(f.merged.Items(registry.Key{Host: "web.service.consul", Namespace: "default"})[0].Endpoints.Items)
				}
				time.Sleep(time.Minute)
				if n := count(); n != 2 {
					t.Fatalf("%d instances at first", n)
				}
				c.change(func() { c.services["new"] = api.HealthPassing })
				time.Sleep(time.Minute)
				if n := count(); n != 1 {
					t.Fatalf("%d instances after one was renamed", n)
				}
				time.Sleep(5 * longWait)
				if n := count(); n != 1 {
					t.Errorf("%d instances after an answer of before", n)
				}
			})
		})
	}
}
