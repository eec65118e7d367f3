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
