package consul

import (
	"fmt"
	"math/rand/v2"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/consul/api"
)

const web = "web.service.consul"

// withWeb returns a Consul of these datacenters. Each has the services web, with two instances, and
// db.
func withWeb(dcs ...string) *fakeConsul {
	f := newFakeConsul(dcs...)
	for _, d := range f.dcs {
		d.register(1, "web")
		d.register(2, "web")
		d.register(3, "db")
	}
	return f
}

// Every change in Consul arrives as a batch with the one service that changed.
func TestChanges(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := withWeb("dc1")
		r := receive(t, f, Options{}, true)
		defer r.stop()
		d := f.dcs["dc1"]
		time.Sleep(time.Second)
		if got := r.since(); len(got) != 1 || !got[0].Full || got[0].Source != "consul:test" {
			t.Errorf("got %+v, want one Full batch", got)
		}
		r.is(d, "web", "web.service.dc1.consul")
		steps := []struct {
			name   string
			change func()
		}{
			{"a check fails", func() { d.check(1, api.HealthCritical) }},
			{"it passes again", func() { d.check(1, api.HealthPassing) }},
			{"an instance is added", func() { d.register(4, "web") }},
			{"an instance is removed", func() { d.deregister(4) }},
			{"a new service", func() { d.register(5, "new") }},
			{"it is removed", func() { d.deregister(5) }},
			{"it is back", func() { d.register(5, "new") }},
		}
		for _, step := range steps {
			f.change(step.change)
			time.Sleep(time.Second)
			r.is(d, "web", web)
			r.is(d, "new", "new.service.consul")
			if got := r.since(); len(got) != 1 || got[0].Full || len(got[0].Updates) != 1 || got[0].Since.IsZero() {
				t.Errorf("%s: got %+v, want one batch with one group", step.name, got)
			}
		}
		f.change(func() { d.check(1, api.HealthCritical) })
		time.Sleep(15 * time.Millisecond)
		r.is(d, "web", web)
	})
}

// A service that changes all the time is read 20 times a second at most, and its last state
// arrives.
func TestStorm(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := withWeb("dc1")
		r := receive(t, f, Options{}, true)
		defer r.stop()
		d := f.dcs["dc1"]
		time.Sleep(time.Second)
		f.received("")
		for i := range 1000 {
			f.change(func() { d.check(1, []string{api.HealthCritical, api.HealthPassing}[i%2]) })
			time.Sleep(10 * time.Millisecond)
		}
		if n := f.received("/v1/health/service/web"); n > 201 {
			t.Errorf("1000 changes in 10 s led to %d queries", n)
		}
		time.Sleep(time.Second)
		r.is(d, "web", web)
	})
}

// When nothing changes, a query is repeated only after its wait.
func TestIdle(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := withWeb("dc1")
		r := receive(t, f, Options{}, true)
		defer r.stop()
		time.Sleep(time.Second)
		f.received("")
		r.since()
		time.Sleep(time.Hour)
		f.mu.Lock()
		n := len(f.queries)
		f.mu.Unlock()
		if most := int(time.Hour/catalogWait + 2*time.Hour/instancesWait); n > most {
			t.Errorf("an idle hour takes %d queries, want at most %d", n, most)
		}
		if got := r.since(); len(got) > 0 {
			t.Errorf("an idle hour led to %+v", got)
		}
	})
}

// An instance that is registered again under another name leaves its former service, although
// Consul does not answer blocking queries about that one.
func TestRenamedInstance(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := withWeb("dc1")
		r := receive(t, f, Options{}, true)
		defer r.stop()
		d := f.dcs["dc1"]
		for _, to := range []string{"db", "new", "web", "db"} {
			time.Sleep(time.Second)
			f.change(func() { d.register(1, to) })
			time.Sleep(time.Second)
			for _, name := range []string{"web", "db", "new"} {
				r.is(d, name, name+".service.consul")
			}
		}
	})
}

// A server that lags behind is not queried without a pause, although it still has an instance under its
// former name.
func TestLaggingServer(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := withWeb("dc1")
		r := receive(t, f, Options{}, true)
		defer r.stop()
		d := f.dcs["dc1"]
		time.Sleep(time.Second)
		f.change(func() {
			index, former := d.index, d.entries("dc1", d.of("web"))
			d.register(1, "db")
			f.fail = func(_, path string) *http.Response {
				if path != "/v1/health/service/web" {
					return nil
				}
				return respond(index, false, former)
			}
		})
		f.received("")
		time.Sleep(10 * time.Second)
		if n := f.received("/v1/health/service/db"); n > 201 {
			t.Errorf("10 s led to %d queries", n)
		}
		f.change(func() { f.fail = nil })
		time.Sleep(time.Second)
		r.is(d, "db", "db.service.consul")
		r.is(d, "web", "web.service.consul")
	})
}

// After random changes and failures, the services are those of Consul once it answers again.
func TestHistories(t *testing.T) {
	t.Parallel()
	for seed := range uint64(60) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				random := rand.New(rand.NewPCG(seed, 1))
				f := withWeb("dc1", "dc2")
				r := receive(t, f, Options{Datacenters: []string{"dc1", "dc2"}}, seed%2 == 0)
				defer r.stop()
				names := []string{"a", "b", "c", "web"}
				for range 5 + random.IntN(30) {
					dc := []string{"dc1", "dc2"}[random.IntN(2)]
					d, id := f.dcs[dc], random.IntN(6)
					switch random.IntN(7) {
					case 0, 1:
						f.change(func() { d.register(id, names[random.IntN(len(names))]) })
					case 2:
						if d.instances[id] != nil {
							f.change(func() { d.deregister(id) })
						}
					case 3:
						if d.instances[id] != nil {
							f.change(func() {
								d.check(id, []string{api.HealthPassing,
									api.HealthCritical}[random.IntN(2)])
							})
						}
					case 4:
						f.failingIf(random.IntN(2)*500, "No cluster leader",
							func(in, _ string) bool { return in == "" || dc == "dc2" })
					case 5:
						f.change(func() { f.cuts++ })
					case 6:
						f.change(func() { f.dcs[dc] = newFakeDC(uint64(random.IntN(300))); f.cuts++ })
					}
					time.Sleep([]time.Duration{time.Millisecond, 100 * time.Millisecond, time.Second,
						time.Minute}[random.IntN(4)])
				}
				f.failing(0, "")
				time.Sleep(instancesWait + time.Minute)
				for dc, d := range f.dcs {
					for _, name := range append(names, "db") {
						r.is(d, name, name+".service."+dc+".consul")
					}
				}
				if down := r.down(); down != "" {
					t.Errorf("in the end it is down: %s", down)
				}
				for group := range r.all() {
					if text := r.problems(group); text != "" {
						t.Errorf("in the end there is the problem %q", text)
					}
				}
			})
		})
	}
}
