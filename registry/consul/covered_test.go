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
