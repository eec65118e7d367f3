package consul

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
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
	sc := newScope(place{})
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
	said := map[*service]converted{}
	claims := func(s *service, index uint64, ids ...instanceID) {
		is := converted{index: index, ids: ids}
		sc.claim(s, said[s], is)
		said[s] = is
	}
	is := func(what string, old, new bool) {
		t.Helper()
		if gotOld, gotNew := asked(before), asked(after); gotOld != old || gotNew != new {
			t.Errorf("%s: the old one is asked for: %v, want %v; the new one: %v, want %v; %v", what, gotOld, old, gotNew, new, sc.bearers)
		}
	}
	claims(before, 1, a, b)
	is("new instances", false, false)
	claims(after, 2, b, c)
	is("one of another", true, false)
	claims(before, 1, a, b)
	is("the other one still has it", false, false)
	claims(before, 3, a, b)
	is("it is back", false, true)
	claims(after, 2, b, c)
	is("the new one still has it", false, false)
	claims(after, 2, c)
	is("the new one has it no more", false, false)
	claims(before, 4, a)
	claims(after, 6, b, c)
	is("it has gone before", false, false)
	claims(before, 5, a, b)
	is("an answer from before that", true, false)
	claims(before, 5, a, b)
	is("the same again", false, false)
	sc.recount(2)
	claims(before, 2, a, b)
	is("Consul counts anew", false, true)
	claims(after, 2, c)
	claims(before, 2, a)
	if len(sc.bearers) != 2 {
		t.Errorf("left are %v", sc.bearers)
	}
	delete(sc.services, "old")
	claims(after, 1, a)
	if is("of one that is gone", false, false); sc.bearers[a].service != "new" {
		t.Errorf("it has not what was of one that is gone: %v", sc.bearers)
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

// Where an instance takes another name no index changes: what an agent remembers of before takes nothing back that the leader said. That is
// asked until it answers.
func TestOfBeforeTheClaim(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		reads    string
		failures int32 // of what the leader is asked
	}{{readsStale, 0}, {readsCached, 0}, {readsStale, 1}, {readsCached, 1}, {readsCached, 3}} {
		t.Run(fmt.Sprint(tc), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				c := newCatalogs("web")
				var failed atomic.Int32
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
						if failed.Add(1) <= tc.failures {
							return resp(r, http.StatusInternalServerError, 0, false, "rpc error making call: EOF")
						}
						body = at(1)
					}
					return resp(r, 200, 10, false, "["+body+"]")
				}}, Options{Reads: tc.reads}, lastgood.Config[registry.Instances]{})
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

// An instance that takes another name and its own again is in one service at last: of the one between no index says that it has left.
func TestRenamedAndBack(t *testing.T) {
	t.Parallel()
	for _, after := range []time.Duration{0, time.Millisecond, 2 * time.Millisecond, 10 * time.Millisecond, 30 * time.Millisecond, 100 * time.Millisecond} {
		t.Run(fmt.Sprint(after), func(t *testing.T) {
			t.Parallel()
			for i := range 30 { // how soon the services may be asked for again
				synctest.Test(t, func(t *testing.T) {
					w := newTwin("")
					d := w.dcs[""]
					d.register(0, "web", 8)
					d.register(1, "pay", 50)
					d.register(2, "web", 120)
					f := lookOver(t, w, Options{}, lastgood.Config[registry.Instances]{})
					defer f.end()
					time.Sleep(time.Minute)
					w.change(func() { d.check(0, api.HealthCritical) })
					time.Sleep(time.Duration(i) * 4 * time.Millisecond)
					w.change(func() { d.register(0, "pay", 13) })
					synctest.Wait()
					time.Sleep(after)
					w.change(func() { d.register(0, "web", 9) })
					time.Sleep(time.Minute)
					for _, name := range []string{"web", "pay"} {
						if got, want := f.all(name+".service.consul"), w.is("", name); got != want {
							t.Errorf("after %v, %d: %s has %q, want %q", after, i, name, got, want)
						}
					}
				})
			}
		})
	}
}
