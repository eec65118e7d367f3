package consul

import (
	"fmt"
	"sync/atomic"
	"testing"

	"github.com/hashicorp/consul/api"

	"github.com/ashore-mesh/ashore/internal/testconsul"
)

// Changes of a service in Consul change its endpoints, with each protocol.
func TestChanges(t *testing.T) {
	t.Parallel()
	for _, w := range ways() {
		t.Run(w.name, func(t *testing.T) {
			t.Parallel()
			a := testconsul.Start(t, nil)
			c := newCatalog(t, a, "")
			c.put("web-1", "10.0.0.1", 8080, "passing")
			c.others()
			v := follow(t, w.options(a))
			const host, healthy = "web.service.consul", "10.0.0.1:8080 healthy"
			v.has(t, host, healthy)
			v.has(t, "web.service.dc1.consul", healthy)

			c.put("web-2", "10.0.0.2", 8080, "passing")
			v.has(t, host, healthy, "10.0.0.2:8080 healthy")
			c.put("web-2", "10.0.0.3", 8081, "passing")
			v.has(t, host, healthy, "10.0.0.3:8081 healthy")
			for range 3 {
				c.health("web-2", "critical")
				v.has(t, host, healthy, "10.0.0.3:8081 unhealthy")
				c.health("web-2", "warning")
				v.has(t, host, healthy, "10.0.0.3:8081 healthy")
				c.health("web-2", "critical")
				v.has(t, host, healthy, "10.0.0.3:8081 unhealthy")
				c.health("web-2", "passing")
				v.has(t, host, healthy, "10.0.0.3:8081 healthy")
			}
			c.remove("web-2")
			v.has(t, host, healthy)

			c.put("late-1", "10.0.1.1", 9090, "critical")
			v.has(t, "late.service.consul", "10.0.1.1:9090 unhealthy")
			c.health("late-1", "passing")
			v.has(t, "late.service.consul", "10.0.1.1:9090 healthy")
			c.remove("late-1")
			v.until(t, "late is gone", func() bool { return v.endpoints("late.service.consul") == nil })
			c.put("late-1", "10.0.1.2", 9090, "passing")
			v.has(t, "late.service.consul", "10.0.1.2:9090 healthy")
		})
	}
}

// An instance in maintenance drains. Maintenance of a node applies to all its instances.
func TestMaintenance(t *testing.T) {
	t.Parallel()
	for _, w := range ways() {
		t.Run(w.name, func(t *testing.T) {
			t.Parallel()
			a := testconsul.Start(t, nil)
			c := newCatalog(t, a, "")
			agent := c.c.Agent()
			for i := range 12 {
				c.put(fmt.Sprintf("other%d-1", i), "10.1.0.1", 80, "passing")
			}
			for i, name := range []string{"one", "two"} {
				err := agent.ServiceRegister(&api.AgentServiceRegistration{ID: name, Name: name,
					Address: fmt.Sprintf("10.0.0.%d", i+1), Port: 80,
					Check: &api.AgentServiceCheck{TTL: "1h", Status: "passing"}})
				if err != nil {
					t.Fatal(err)
				}
			}
			v := follow(t, w.options(a))
			state := func(one, two string) {
				t.Helper()
				v.has(t, "one.service.consul", "10.0.0.1:80 "+one)
				v.has(t, "two.service.consul", "10.0.0.2:80 "+two)
			}
			do := func(err error) {
				t.Helper()
				if err != nil {
					t.Fatal(err)
				}
			}
			state("healthy", "healthy")
			do(agent.EnableServiceMaintenance("one", "upgrade"))
			state("draining", "healthy")
			do(agent.EnableNodeMaintenance("reboot"))
			state("draining", "draining")
			do(agent.DisableServiceMaintenance("one"))
			do(agent.DisableNodeMaintenance())
			state("healthy", "healthy")
			do(agent.UpdateTTL("service:two", "it burns", "critical"))
			state("healthy", "unhealthy")
		})
	}
}

// Many changes of a service lead to a bounded number of batches. They do not delay other services,
// and the last state arrives.
func TestStorm(t *testing.T) {
	t.Parallel()
	for _, w := range ways() {
		t.Run(w.name, func(t *testing.T) {
			t.Parallel()
			a := testconsul.Start(t, nil)
			c := newCatalog(t, a, "")
			c.put("hot-1", "10.0.0.1", 80, "passing")
			for i := range 12 {
				c.put(fmt.Sprintf("other%d-1", i), "10.1.0.1", 80, "passing")
			}
			v := follow(t, w.options(a))
			v.synced(t)
			before, _ := v.said()
			const changes = 300
			var done atomic.Int64
			for i := range changes {
				c.put("hot-1", "10.0.0.1", 1000+i, []string{"passing", "critical"}[i%2])
				done.Add(1)
			}
			c.put("calm-1", "10.0.0.9", 80, "passing")
			v.has(t, "hot.service.consul", fmt.Sprintf("10.0.0.1:%d unhealthy", 1000+changes-1))
			v.has(t, "calm.service.consul", "10.0.0.9:80 healthy")
			after, _ := v.said()
			if n := after - before; n > changes/2 {
				t.Errorf("%d changes led to %d batches", changes, n)
			}
			t.Logf("%d changes, %d batches", changes, after-before)
		})
	}
}
