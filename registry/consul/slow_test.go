package consul

import (
	"fmt"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/consul/api"

	"github.com/ashore-mesh/ashore/internal/lastgood"
	"github.com/ashore-mesh/ashore/registry"
)

// A datacenter whose answers take long delays nothing of another one, however many services it has.
func TestSlowDatacenter(t *testing.T) {
	t.Parallel()
	for _, services := range []int{60, 500} {
		t.Run(fmt.Sprint(services), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				c := newCatalogs("web")
				for i := range services {
					c.services[fmt.Sprintf("dc2/s%d", i)] = api.HealthPassing
				}
				o := &over{c: c}
				f := lookOver(t, o, Options{Datacenters: []string{"dc1", "dc2"}}, lastgood.Config[registry.Instances]{})
				defer f.end()
				time.Sleep(time.Minute)
				if f.state("web.service.consul") != "healthy" || f.state("s7.service.dc2.consul") != "healthy" {
					t.Fatalf("they are not there: %v", f.problems())
				}
				o.set(func(r *http.Request) *http.Response { // as without a leader (rpc_hold_timeout)
					if r.URL.Query().Get("dc") != "dc2" {
						return nil
					}
					select {
					case <-time.After(7 * time.Second):
					case <-r.Context().Done():
						return nil
					}
					return resp(r, http.StatusInternalServerError, 0, false, "No cluster leader")
				})
				c.change(func() {})
				time.Sleep(2 * time.Minute)
				c.change(func() { c.services["new"], c.services["web"] = api.HealthPassing, api.HealthCritical })
				time.Sleep(5 * time.Second)
				if web, added := f.state("web.service.consul"), f.state("new.service.consul"); web != "unhealthy" || added != "healthy" {
					t.Errorf("5 seconds after the other datacenter changed, what became critical is %q, and what is new %q", web, added)
				}
			})
		})
	}
}
