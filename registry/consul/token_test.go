package consul

import (
	"fmt"
	"net/http"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/consul/api"

	"github.com/ashore-mesh/ashore/internal/lastgood"
	"github.com/ashore-mesh/ashore/registry"
)

// A service that is deregistered while one of its questions fails goes, also where the token hides something else.
func TestGoneWhileDoubted(t *testing.T) {
	t.Parallel()
	for name, fails := range map[string]func(dc, path string) bool{
		"one question": func(_, path string) bool { return path == "/v1/health/service/web" },
		"all":          func(string, string) bool { return true },
	} {
		for _, after := range []time.Duration{10 * time.Millisecond, time.Second, 3 * time.Second} {
			for i := range 5 { // who comes back first is another one each time
				t.Run(fmt.Sprint(name, after, i), func(t *testing.T) {
					t.Parallel()
					synctest.Test(t, func(t *testing.T) {
						c := newCatalogs("web", "pay", "secret")
						c.hidden["secret"] = true
						f := c.look(t, Options{}, lastgood.Config[registry.Instances]{})
						defer f.end()
						time.Sleep(time.Minute)
						if f.state("web.service.consul") != "healthy" {
							t.Fatal("it is not there")
						}
						c.change(func() { c.fails = fails })
						time.Sleep(after)
						c.change(func() { c.fails = nil; delete(c.services, "web") })
						time.Sleep(time.Hour)
						if f.state("web.service.consul") != "" || f.tells("web") > 0 || f.state("pay.service.consul") != "healthy" {
							t.Errorf("an hour after it was deregistered it is there: %v", f.problems())
						}
					})
				})
			}
		}
	}
}

// What another token reads more of a service counts, although nothing changed in Consul and the names of all services tell nothing,
// also among many services.
func TestMoreInstances(t *testing.T) {
	t.Parallel()
	for _, services := range []int{1, 90} { // there is room for 88
		t.Run(fmt.Sprint(services), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				c := newCatalogs(append(numbered(services), "web")...)
				var mu sync.Mutex
				reads := 1
				f := lookOver(t, &over{c: c, f: func(r *http.Request) *http.Response {
					q := r.URL.Query()
					if r.URL.Path != "/v1/health/service/web" {
						return nil
					}
					if wait, err := time.ParseDuration(q.Get("wait")); err == nil && q.Get("index") == "10" {
						select {
						case <-time.After(wait):
						case <-r.Context().Done():
						}
					}
					mu.Lock()
					defer mu.Unlock()
					body := ""
					for i := range reads {
						body += fmt.Sprintf(`,{"Node":{"Node":"n%d","Address":"10.0.0.%d","Datacenter":"dc1"},"Service":{"ID":"%d","Service":"web","Port":80}}`, i, i+1, i)
					}
					if q.Get("filter") == nothing {
						body = " "
					}
					return resp(r, 200, 10, reads < 2 && q.Get("filter") != nothing, "["+body[1:]+"]")
				}}, Options{}, lastgood.Config[registry.Instances]{})
				defer f.end()
				time.Sleep(time.Minute)
				mu.Lock()
				reads = 2
				mu.Unlock()
				time.Sleep(longWait + longWait/16 + time.Second)
				synctest.Wait()
				f.mu.Lock()
				defer f.mu.Unlock()
				if n := len(f.merged.Items(registry.Key{Host: "web.service.consul", Namespace: "default"})[0].Endpoints.Items); n != 2 {
					t.Errorf("%d instances after the token reads 2", n)
				}
			})
		})
	}
}

// Which names a token reads counts, not how many, and all that it reads is asked for anew: that may be otherwise too.
func TestOtherToken(t *testing.T) {
	t.Parallel()
	for _, services := range []int{1, 90} { // there is room for 88
		t.Run(fmt.Sprint(services), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				c := newCatalogs(append(numbered(services), "web", "pay", "secret")...)
				c.hidden["web"], c.hidden["secret"] = true, true
				f := c.look(t, Options{}, lastgood.Config[registry.Instances]{})
				defer f.end()
				time.Sleep(time.Minute)
				c.mu.Lock() // nobody is woken, and no index is another
				delete(c.hidden, "web")
				c.hidden["pay"] = true
				c.services["s0"] = api.HealthCritical
				c.mu.Unlock()
				time.Sleep(10 * filteredWait)
				if got := f.state("web.service.consul"); got != "healthy" {
					t.Errorf("what the token reads now is %q", got)
				}
				if got := f.state("s0.service.consul"); got != "unhealthy" {
					t.Errorf("what the token reads otherwise now is %q", got)
				}
				if got := f.state("pay.service.consul"); got != "healthy" || f.tells("the token reads nothing any more of what it read before") != 1 {
					t.Errorf("what it does not read any more is %q; problems: %v", got, f.problems())
				}
			})
		})
	}
}

// What the token does not read any more when Consul answers for it, for the first time since a start, is hidden, not gone: what was kept of
// it stands in then as before, and at the next start.
func TestHiddenAfterStart(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c, cfg := newCatalogs("web", "pay"), lastgood.Config[registry.Instances]{Store: &shelf{all: map[string][]byte{}}}
		f := c.look(t, Options{}, cfg)
		time.Sleep(time.Minute)
		f.end()
		is := func(when, text string) {
			t.Helper()
			time.Sleep(time.Minute)
			if got := f.state("web.service.consul"); got != "healthy" || f.tells(text) != 1 || f.state("pay.service.consul") != "healthy" {
				t.Errorf("%s it is %q; problems: %v", when, got, f.problems())
			}
		}
		c.change(func() { c.fails = func(_, path string) bool { return path == "/v1/health/service/web" } })
		f = c.look(t, Options{}, cfg)
		is("in trouble", "Consul service web: Consul at http://consul.test:8500 answers 500")
		c.change(func() { c.fails, c.hidden["web"] = nil, true })
		is("hidden", "Consul service web: Consul at http://consul.test:8500: the token reads nothing any more")
		f.end()
		f = c.look(t, Options{}, cfg)
		defer f.end()
		is("after the next start", "Consul service web: Consul at http://consul.test:8500: the token reads nothing any more")
	})
}

// A service that is deregistered while the token reads nothing any more goes: Consul says that it has none of it, and of another one that the
// token hides it. One that Consul loses then stays.
func TestGoneBehindBlindToken(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		index uint64 // of Consul then; zero: it goes on
		want  string
		lost  int
	}{
		"deregistered": {0, "", 0},
		"lost":         {3, "healthy", 1},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				c := newCatalogs("web", "pay", "db")
				f := c.look(t, Options{}, lastgood.Config[registry.Instances]{})
				defer f.end()
				time.Sleep(time.Minute)
				c.change(func() { c.hidden["web"], c.hidden["pay"], c.hidden["db"] = true, true, true })
				time.Sleep(time.Minute)
				c.change(func() {
					if delete(c.services, "web"); tc.index > 0 {
						c.index = tc.index
					}
				})
				time.Sleep(time.Minute)
				if got := f.state("web.service.consul"); got != tc.want || f.tells("came back without the services that it had: web") != tc.lost {
					t.Errorf("a minute later it is %q, want %q; problems: %v", got, tc.want, f.problems())
				}
				for _, name := range []string{"pay", "db"} {
					if got := f.state(name + ".service.consul"); got != "healthy" {
						t.Errorf("%s, which is hidden, is %q", name, got)
					}
				}
				c.change(func() { clear(c.hidden) })
				time.Sleep(time.Minute)
				if got := f.state("web.service.consul"); got != tc.want || f.state("pay.service.consul") != "healthy" || len(f.problems()) != tc.lost {
					t.Errorf("in the end it is %q, want %q; problems: %v", got, tc.want, f.problems())
				}
			})
		})
	}
}
