package consul

import (
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/consul/api"

	"github.com/ashore-mesh/ashore/internal/lastgood"
	"github.com/ashore-mesh/ashore/registry"
)

// A token that does not read Consul's own service does where there is one datacenter; among several that service tells which one is
// the agent's own, and what is missing is said.
func TestOwnDatacenterUnread(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := newCatalogs("web", "dc2/web")
		var mu sync.Mutex
		list, reads := `["dc1"]`, false
		o := &over{c: c, f: func(r *http.Request) *http.Response {
			mu.Lock()
			defer mu.Unlock()
			switch {
			case r.URL.Path == "/v1/catalog/datacenters":
				return resp(r, http.StatusOK, 0, false, list)
			case r.URL.Path == "/v1/health/service/consul" && !reads:
				return resp(r, http.StatusOK, 10, true, "[]")
			}
			return nil
		}}
		star := Options{Datacenters: []string{allDatacenters}}
		f := lookOver(t, o, star, lastgood.Config[registry.Instances]{})
		time.Sleep(time.Minute)
		if got := f.state("web.service.consul"); got != "healthy" {
			t.Errorf("of one datacenter it is %q; problems %v", got, f.problems())
		}
		f.end()
		mu.Lock()
		list = `["dc1","dc2"]`
		mu.Unlock()
		f = lookOver(t, o, star, lastgood.Config[registry.Instances]{})
		defer f.end()
		time.Sleep(time.Minute)
		if got := f.stands().Error; !strings.HasPrefix(got, "Consul at http://consul.test:8500: the token does not read the service consul, by which") {
			t.Errorf("it stands as %q", got)
		}
		mu.Lock()
		reads = true
		mu.Unlock()
		time.Sleep(2 * time.Minute)
		if own, other := f.state("web.service.consul"), f.state("web.service.dc2.consul"); own != "healthy" || other != "healthy" || f.stands().Error != "" {
			t.Errorf("it is %q and %q; it stands as %q", own, other, f.stands().Error)
		}
	})
}

// A datacenter that Consul does not know, as a server before it has joined the others, is away, over starts too, until it is
// known again or the settings say that it is gone. One that the settings do not name any more is gone.
func TestUnknownDatacenter(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const all, one = `["dc1","dc2"]`, `["dc1"]`
		c := newCatalogs("web", "dc2/web")
		var mu sync.Mutex
		list := all
		knows := func(datacenters string) {
			mu.Lock()
			list = datacenters
			mu.Unlock()
			c.change(func() { c.fails = func(dc, _ string) bool { return datacenters == one && dc == "dc2" } })
		}
		o := &over{c: c, f: func(r *http.Request) *http.Response {
			if r.URL.Path != "/v1/catalog/datacenters" {
				return nil
			}
			mu.Lock()
			defer mu.Unlock()
			return resp(r, http.StatusOK, 0, false, list)
		}}
		cfg := lastgood.Config[registry.Instances]{Store: &shelf{all: map[string][]byte{}}}
		star := Options{Datacenters: []string{allDatacenters}}
		var f *following
		is := func(what, want string, away int) {
			t.Helper()
			time.Sleep(10 * time.Minute)
			if own, got := f.state("web.service.consul"), f.state("web.service.dc2.consul"); own != "healthy" || got != want || f.tells("Consul, datacenter dc2: ") != away || f.stands().Stale != away {
				t.Errorf("%s: it is %q, want %q, and what is of the agent's datacenter %q; problems %v", what, got, want, own, f.problems())
			}
		}
		f = lookOver(t, o, star, cfg)
		is("at first", "healthy", 0)
		knows(one)
		is("while it runs", "healthy", 1)
		for range 2 { // the second start has what the first one kept of it
			f.end()
			f = lookOver(t, o, star, cfg)
			is("after a start", "healthy", 1)
		}
		c.change(func() { c.services["dc2/web"] = api.HealthCritical })
		knows(all)
		is("known again", "unhealthy", 0)
		knows(one)
		f.end()
		believed := star
		believed.Emptied = emptiedBelieve
		f = lookOver(t, o, believed, cfg)
		is("believed", "", 0)
		f.end()

		knows(all)
		f = lookOver(t, o, star, cfg)
		is("back", "unhealthy", 0)
		f.end()
		f = lookOver(t, o, Options{Datacenters: []string{"dc1"}}, cfg)
		is("not named", "", 0)
		f.end()
	})
}
