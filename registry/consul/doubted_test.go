package consul

import (
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

// ofService says that a path is that of a question about one service.
func ofService(_, path string) bool { return strings.HasPrefix(path, "/v1/health/service/") }

// ofNames says that a path is that of the names of all services.
func ofNames(_, path string) bool { return path == "/v1/catalog/services" }

// A Consul that has lost its data says so of services before it tells of the names; when it does, the agents have registered all of
// them again. What it said before counts no more: no service is without instances for a moment, whether it can be asked for just then or not.
func TestDoubtedBeforeNames(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		services int
		then     func(dc, path string) bool // fails once the names are told again
	}{
		"few":                          {30, nil},
		"few, who cannot be asked":     {30, ofService},
		"a crowd":                      {150, nil},
		"a crowd, who cannot be asked": {150, ofService},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				c := newCatalogs(numbered(tc.services)...)
				o := &over{c: c}
				o.set(func(r *http.Request) *http.Response { // it is not next door
					select {
					case <-time.After(5 * time.Millisecond):
					case <-r.Context().Done():
					}
					return nil
				})
				f := lookOver(t, o, Options{}, lastgood.Config[registry.Instances]{})
				defer f.end()
				time.Sleep(time.Minute)
				c.change(func() { c.fails = func(_, _ string) bool { return true } })
				time.Sleep(30 * time.Second)
				all := c.services
				c.change(func() { c.index, c.services, c.fails = 3, map[string]string{}, ofNames })
				time.Sleep(30 * time.Second)
				c.change(func() { c.services = all })
				if tc.then == nil {
					time.Sleep(time.Second)
				}
				c.change(func() { c.fails = tc.then })
				for range 200 {
					time.Sleep(15 * time.Millisecond)
					for i := range tc.services {
						if got := f.state(fmt.Sprintf("s%d.service.consul", i)); got != "healthy" {
							t.Fatalf("s%d is %q while it passes; problems: %v", i, got, f.problems())
						}
					}
				}
				c.change(func() { c.fails, c.services["s0"] = nil, api.HealthCritical })
				time.Sleep(time.Minute)
				if got := f.state("s0.service.consul"); got != "unhealthy" || len(f.problems()) > 0 {
					t.Errorf("in the end it is %q; problems: %v", got, f.problems())
				}
			})
		})
	}
}

// Names that were asked for before something was doubted say nothing of it.
func TestDoubtedAfterNames(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := newCatalogs("web", "pay")
		o, asked := &over{c: c}, make(chan struct{})
		restored := func(r *http.Request) *http.Response { // which nobody tells
			if strings.HasPrefix(r.URL.Path, "/v1/catalog/node/") && r.URL.Query().Has("index") {
				<-r.Context().Done()
			}
			return nil
		}
		o.set(restored)
		f := lookOver(t, o, Options{}, lastgood.Config[registry.Instances]{})
		defer f.end()
		time.Sleep(time.Minute)
		c.change(func() { c.fails = func(_, path string) bool { return path == "/v1/health/service/web" } })
		time.Sleep(10 * time.Second)
		o.set(func(r *http.Request) *http.Response {
			if !ofNames("", r.URL.Path) || r.URL.Query().Has("index") {
				return restored(r)
			}
			o.set(restored)
			names, err := c.RoundTrip(r)
			if err != nil {
				t.Error(err)
			}
			close(asked)
			time.Sleep(2 * time.Second)
			return names
		})
		c.mu.Lock() // nobody is woken
		c.fails, c.index = nil, 20
		delete(c.services, "web")
		c.mu.Unlock()
		<-asked // since web is doubted, which could not be asked for; the answer is of now, and arrives late
		c.change(func() { c.index, c.services = 3, map[string]string{} })
		for range 300 {
			time.Sleep(100 * time.Millisecond)
			if got := f.state("pay.service.consul"); got != "healthy" {
				t.Fatalf("when Consul has lost it, it is %q; problems: %v", got, f.problems())
			}
		}
		if f.tells("came back without the services that it had: pay") != 1 {
			t.Errorf("problems: %v", f.problems())
		}
	})
}
