package consul

import (
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/consul/api"

	"github.com/ashore-mesh/ashore/internal/lastgood"
	"github.com/ashore-mesh/ashore/registry"
)

// What counts as gone, since it is too old, does not come back for a moment because something else does: another datacenter, or the
// names of its own services. It is gone until it has answered itself.
func TestTooOldUntilAnswered(t *testing.T) {
	t.Parallel()
	all, dc2 := func(string, string) bool { return true }, func(dc, _ string) bool { return dc == "dc2" }
	services := func(dc, path string) bool { return dc == "dc2" && strings.HasPrefix(path, "/v1/health/service/") }
	tests := map[string]struct {
		first, then func(dc, path string) bool
		start       bool          // ashored is started in between
		slow        time.Duration // what is asked of a service takes so long
	}{
		"the other datacenter is back":       {all, dc2, false, 0},
		"the names are back with all":        {all, services, false, 0},
		"the names are back":                 {dc2, services, false, 0},
		"the names are back after a start":   {dc2, services, true, 0},
		"services answer slowly":             {dc2, func(string, string) bool { return false }, false, time.Second},
		"services answer slowly after all":   {all, func(string, string) bool { return false }, false, time.Second},
		"services answer late after a start": {dc2, func(string, string) bool { return false }, true, 10 * time.Second},
		"services answer slowly after start": {dc2, func(string, string) bool { return false }, true, time.Second},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				c, o := newCatalogs("web", "dc2/web"), Options{Datacenters: []string{"dc1", "dc2"}}
				cfg := lastgood.Config[registry.Instances]{Store: &shelf{all: map[string][]byte{}}, MaxAge: time.Hour, Drop: true}
				slow := &over{c: c}
				f := lookOver(t, slow, o, cfg)
				time.Sleep(time.Minute)
				c.change(func() { c.fails = tc.first })
				time.Sleep(3 * time.Hour)
				if tc.start {
					f.end()
					f = lookOver(t, slow, o, cfg)
					time.Sleep(time.Minute)
				}
				defer func() { f.end() }()
				if f.state("web.service.dc2.consul") != "" {
					t.Fatal("it is not gone")
				}
				if tc.slow > 0 {
					slow.set(func(r *http.Request) *http.Response {
						if services(r.URL.Query().Get("dc"), r.URL.Path) {
							time.Sleep(tc.slow)
						}
						return nil
					})
				}
				c.change(func() { c.fails, c.services["dc2/web"] = tc.then, api.HealthCritical })
				for began := time.Now(); time.Since(began) < time.Minute; time.Sleep(50 * time.Millisecond) {
					if got := f.state("web.service.dc2.consul"); got == "healthy" {
						t.Fatalf("%v after that, what was said three hours ago is %q", time.Since(began), got)
					}
				}
				if own, got := f.state("web.service.consul"), f.state("web.service.dc2.consul"); own != "healthy" || got != "" && tc.slow == 0 || got != "unhealthy" && tc.slow > 0 {
					t.Errorf("in the end it is %q, and the other %q; problems %v", got, own, f.problems())
				}
				if f.tells("older than the setting maxAge") != map[bool]int{true: 0, false: 1}[tc.slow > 0] {
					t.Errorf("problems: %v", f.problems())
				}
				c.change(func() { c.fails = nil })
				time.Sleep(time.Minute)
				if f.is("back", "", 0, time.Time{}); f.state("web.service.dc2.consul") != "unhealthy" || len(f.problems()) != 0 {
					t.Errorf("it is not back: %v", f.problems())
				}
			})
		})
	}
}

// What was lost, and counts as gone since it is too old, does not come back for that its name is listed again: that is no answer.
func TestTooOldUntilFound(t *testing.T) {
	t.Parallel()
	for name, slow := range map[string]time.Duration{"it answers soon": 50 * time.Millisecond, "it answers late": time.Second, "it does not answer": time.Hour} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				c := newCatalogs("web", "pay")
				o := &over{c: c}
				f := lookOver(t, o, Options{}, lastgood.Config[registry.Instances]{MaxAge: time.Hour, Drop: true})
				defer f.end()
				time.Sleep(time.Minute)
				c.change(func() { c.index = 3; delete(c.services, "web") })
				time.Sleep(3 * time.Hour)
				if got := f.state("web.service.consul"); got != "" || f.tells("came back without") != 1 {
					t.Fatalf("it is %q, not gone; problems: %v", got, f.problems())
				}
				o.set(func(r *http.Request) *http.Response {
					if strings.HasPrefix(r.URL.Path, "/v1/health/service/web") {
						select {
						case <-time.After(slow):
						case <-r.Context().Done():
						}
					}
					return nil
				})
				c.change(func() { c.services["web"] = api.HealthCritical })
				for began := time.Now(); time.Since(began) < 5*time.Minute; time.Sleep(10 * time.Millisecond) {
					if got := f.state("web.service.consul"); got == "healthy" {
						t.Fatalf("%v after it was listed, what was said three hours ago is %q", time.Since(began), got)
					}
				}
				if got := f.state("web.service.consul"); got != "unhealthy" && slow < time.Minute || got != "" && slow > time.Minute {
					t.Errorf("in the end it is %q; problems: %v", got, f.problems())
				}
			})
		})
	}
}

// Nor does it for that Consul says that there is none of it, which is doubted until the names of all services are known.
func TestTooOldUntilBelieved(t *testing.T) {
	t.Parallel()
	all, web := func(string, string) bool { return true }, func(_, path string) bool { return path == "/v1/health/service/web" }
	tests := map[string]struct {
		fails func(dc, path string) bool
		names bool // they cannot be asked for once services have answered
	}{
		"all was away":                         {all, false},
		"all was away, and the names are then": {all, true},
		"it was":                               {web, false},
		"it was, and the names are then":       {web, true},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				c := newCatalogs("web", "pay", "secret")
				c.hidden["secret"] = true
				f := c.look(t, Options{}, lastgood.Config[registry.Instances]{MaxAge: time.Hour, Drop: true})
				defer f.end()
				time.Sleep(time.Minute)
				c.change(func() { c.fails = tc.fails })
				time.Sleep(3 * time.Hour)
				if got := f.state("web.service.consul"); got != "" {
					t.Fatalf("it is %q, not gone", got)
				}
				c.mu.Lock() // nobody is woken
				if c.fails = nil; tc.names {
					c.fails = ofNames
				}
				c.index++
				delete(c.services, "web")
				c.mu.Unlock()
				for began := time.Now(); time.Since(began) < 5*time.Minute; time.Sleep(10 * time.Millisecond) {
					if got := f.state("web.service.consul"); got != "" {
						t.Fatalf("%v after Consul is back it is %q: it was deregistered meanwhile; problems: %v", time.Since(began), got, f.problems())
					}
				}
				c.change(func() { c.fails = nil })
				time.Sleep(time.Minute)
				if got := f.state("pay.service.consul"); got != "healthy" || f.state("web.service.consul") != "" || f.tells("web") > 0 {
					t.Errorf("in the end the other one is %q; problems: %v", got, f.problems())
				}
			})
		})
	}
}
