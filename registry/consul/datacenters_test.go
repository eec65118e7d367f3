package consul

import (
	"testing"
	"testing/synctest"
	"time"
)

// With "*", the datacenters are those that Consul lists.
func TestAllDatacenters(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := withWeb("dc1", "dc2")
		r := receive(t, f, Options{Datacenters: []string{"*"}}, true)
		defer r.stop()
		time.Sleep(time.Second)
		dc2, dc3 := f.dcs["dc2"], newFakeDC(7)
		dc3.register(1, "web")
		r.is(f.dcs["dc1"], "web", web)
		r.is(dc2, "web", "web.service.dc2.consul")
		f.change(func() { f.dcs["dc3"] = dc3 })
		time.Sleep(listGap)
		r.is(dc3, "web", "web.service.dc3.consul")

		f.change(func() { delete(f.dcs, "dc2"); f.cuts++ })
		time.Sleep(listGap)
		r.is(dc2, "web", "web.service.dc2.consul") // it may be a server that has not joined the others
		time.Sleep(listGap + time.Second)
		if got := r.host("web.service.dc2.consul"); got != "" {
			t.Errorf("web of a removed datacenter is %q", got)
		}
		if got := r.problems("/datacenter dc2"); got != "" {
			t.Errorf("a removed datacenter has the problem %q", got)
		}
		r.is(dc3, "web", "web.service.dc3.consul")
		f.change(func() { f.dcs["dc2"] = dc2 })
		time.Sleep(listGap + time.Second)
		r.is(dc2, "web", "web.service.dc2.consul")
	})
}

// A datacenter that the settings name stays, whether Consul lists it or not.
func TestNamedDatacenter(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := withWeb("dc1", "dc2")
		r := receive(t, f, Options{Datacenters: []string{"dc2", "dc1"}}, true)
		defer r.stop()
		time.Sleep(time.Second)
		before := r.host("web.service.dc2.consul")
		f.change(func() { delete(f.dcs, "dc2"); f.cuts++ })
		time.Sleep(10 * listGap)
		if got := r.host("web.service.dc2.consul"); got != before || before == "" {
			t.Errorf("web of dc2 is %q, want %q", got, before)
		}
		r.is(f.dcs["dc1"], "web", web)
	})
}
