package consul

import (
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/consul/api"
)

// An outage removes nothing. Queries back off. When Consul answers again, changes arrive within
// seconds.
func TestOutage(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		begin  func(f *fakeConsul)
		within time.Duration // until the source is down
		want   string
	}{
		"errors": {
			func(f *fakeConsul) { f.failing(500, "No cluster leader") },
			time.Second, "check that its servers have a leader",
		},
		"a hung agent": {
			func(f *fakeConsul) { f.change(func() { f.hung = true }) },
			time.Minute, "does not answer in time",
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				f := withWeb("dc1")
				r := receive(t, f, Options{}, true)
				defer r.stop()
				d := f.dcs["dc1"]
				time.Sleep(time.Minute)
				before := r.host(web)
				r.since()
				tc.begin(f)
				time.Sleep(tc.within)
				if got := r.down(); !strings.Contains(got, tc.want) {
					t.Errorf("it is down with %q, want %q", got, tc.want)
				}
				time.Sleep(10 * time.Minute)
				f.received("")
				time.Sleep(time.Minute)
				if n := f.received("/v1/catalog/services"); n > 70 {
					t.Errorf("%d queries in a minute of outage", n)
				}
				f.change(func() { d.check(1, api.HealthCritical); d.register(7, "new") })
				for _, b := range r.since() {
					if len(b.Updates) > 0 {
						t.Errorf("an update in an outage: %+v", b)
					}
				}
				if got := r.host(web); got != before {
					t.Errorf("in the outage web is %q, want %q", got, before)
				}
				f.change(func() { f.hung = false })
				f.failing(0, "")
				time.Sleep(catalogBackoff + time.Second)
				if got := r.down(); got != "" {
					t.Errorf("after the outage it is down with %q", got)
				}
				r.is(d, "web", web)
				r.is(d, "new", "new.service.consul")
			})
		})
	}
}

// A Consul that cannot be reached at the start is Down. The first batch with content is Full.
func TestOutageAtStart(t *testing.T) {
	t.Parallel()
	for _, o := range []Options{{}, {Datacenters: []string{"*"}}, {Datacenters: []string{"dc1", "dc2"}}} {
		synctest.Test(t, func(t *testing.T) {
			f := withWeb("dc1", "dc2")
			f.failing(500, "No cluster leader")
			r := receive(t, f, o, true)
			defer r.stop()
			time.Sleep(time.Second)
			if got := r.down(); !strings.Contains(got, "No cluster leader") || r.full() != 0 {
				t.Errorf("it is down with %q, want the error of Consul", got)
			}
			f.failing(0, "")
			r.since()
			time.Sleep(catalogBackoff + time.Second)
			if r.full() != 1 || len(r.sent()) != 1 {
				t.Errorf("got %+v, want one Full batch", r.sent())
			}
			r.is(f.dcs["dc1"], "web", web)
		})
	}
}

// A datacenter that cannot be reached keeps its services, and is a problem of its own.
func TestDatacenterAway(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := withWeb("dc1", "dc2")
		r := receive(t, f, Options{Datacenters: []string{"dc1", "dc2"}}, true)
		defer r.stop()
		const web2, group = "web.service.dc2.consul", "/datacenter dc2"
		time.Sleep(time.Minute)
		before := r.host(web2)
		f.failingIf(500, "No path to datacenter", func(dc, _ string) bool { return dc == "dc2" })
		f.change(func() { f.dcs["dc1"].check(1, api.HealthCritical); f.dcs["dc2"].check(2, api.HealthCritical) })
		time.Sleep(time.Second)
		got := r.problems(group)
		if !strings.Contains(got, "No path to datacenter") || !strings.Contains(got, "datacenter dc2") {
			t.Errorf("the problem is %q", got)
		}
		if got := r.host(web2); got != before || before == "" {
			t.Errorf("web of dc2 is %q, want %q", got, before)
		}
		r.is(f.dcs["dc1"], "web", web)
		f.failing(0, "")
		time.Sleep(catalogBackoff + time.Second)
		if got := r.problems(group); got != "" {
			t.Errorf("the problem stays: %q", got)
		}
		r.is(f.dcs["dc2"], "web", web2)
		for _, b := range r.since() {
			if b.Down != nil {
				t.Errorf("the source was down: %v", b.Down)
			}
		}
	})
}

// A datacenter that is away at the start does not delay others. It keeps its saved services,
// because no batch is Full before it answers.
func TestDatacenterAwayAtStart(t *testing.T) {
	t.Parallel()
	for _, datacenters := range [][]string{{"dc1", "dc2"}, {"*"}} {
		synctest.Test(t, func(t *testing.T) {
			f := withWeb("dc1", "dc2")
			f.failingIf(500, "No path to datacenter", func(dc, _ string) bool { return dc == "dc2" })
			r := receive(t, f, Options{Datacenters: datacenters}, true)
			defer r.stop()
			r.restore("dc2/web")
			time.Sleep(3 * time.Second)
			r.is(f.dcs["dc1"], "web", web)
			if _, ok := r.all()["dc2/web"]; !ok || r.full() != 0 {
				t.Errorf("the services of dc2 are removed: %+v", r.sent())
			}
			f.change(func() { f.dcs["dc1"].check(1, api.HealthCritical) })
			time.Sleep(time.Second)
			r.is(f.dcs["dc1"], "web", web)
			f.failing(0, "")
			time.Sleep(catalogBackoff + time.Second)
			if r.full() != 1 {
				t.Errorf("%d Full batches, want one", r.full())
			}
			r.is(f.dcs["dc1"], "web", web)
			r.is(f.dcs["dc2"], "web", "web.service.dc2.consul")
		})
	}
}

// A service that cannot be read does not delay others. It keeps its content, and a problem names
// it.
func TestServiceUnreadable(t *testing.T) {
	t.Parallel()
	for _, atStart := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			f := withWeb("dc1")
			fail := func() {
				f.failingIf(500, "rpc error", func(_, path string) bool { return strings.HasSuffix(path, "/web") })
			}
			if atStart {
				fail()
			}
			r := receive(t, f, Options{}, true)
			defer r.stop()
			time.Sleep(2 * time.Second)
			before := r.host(web)
			if !atStart {
				fail()
			}
			time.Sleep(time.Minute)
			if r.full() != 1 || r.all()["web"].Unreadable != atStart || r.host(web) != before || r.down() != "" {
				t.Errorf("at start %v: %d Full batches, web is %+v", atStart, r.full(), r.all()["web"])
			}
			got := r.problems("/agent's datacenter")
			if !strings.Contains(got, "cannot read 1 of 2 services") || !strings.Contains(got, "web: ") {
				t.Errorf("the problem is %q", got)
			}
			f.failing(0, "")
			time.Sleep(lastBackoff + time.Second)
			if got := r.problems("/agent's datacenter"); got != "" {
				t.Errorf("the problem stays: %q", got)
			}
			r.is(f.dcs["dc1"], "web", web)
		})
	}
}

// A Consul that lost its data shows as one batch that removes all services, whichever query is
// answered first.
func TestWiped(t *testing.T) {
	t.Parallel()
	tests := map[string]func(f *fakeConsul){
		"restarted": func(f *fakeConsul) { f.dcs["dc1"] = newFakeDC(5); f.cuts++ },
		"in place":  func(f *fakeConsul) { f.dcs["dc1"] = newFakeDC(500) },
	}
	for name, wipe := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				f := withWeb("dc1")
				r := receive(t, f, Options{}, true)
				defer r.stop()
				time.Sleep(time.Minute)
				r.since()
				f.change(func() { wipe(f) })
				time.Sleep(time.Minute)
				removals := 0
				for _, b := range r.since() {
					groups := 0
					for _, u := range b.Updates {
						if !strings.HasPrefix(u.Group, "/") {
							groups++
						}
					}
					if groups > 0 {
						removals++
					}
					if groups != 0 && groups != 2 || b.Full {
						t.Errorf("a batch removes %d groups: %+v", groups, b)
					}
				}
				if removals != 1 || r.host(web) != "" || r.host("db.service.consul") != "" {
					t.Errorf("%d batches with removals, want one; web is %q", removals, r.host(web))
				}
			})
		})
	}
}

// A service loses its endpoints when no instance matches the filter any more, although the catalog
// lists it.
func TestEmptied(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := withWeb("dc1")
		none := false
		hide := roundTripper(func(r *http.Request) (*http.Response, error) {
			resp, err := f.RoundTrip(r)
			f.mu.Lock()
			defer f.mu.Unlock()
			if none && strings.HasSuffix(r.URL.Path, "/web") && err == nil {
				resp = respond(f.dcs["dc1"].index, false, []api.ServiceEntry{})
			}
			return resp, err
		})
		r := receive(t, hide, Options{}, true)
		defer r.stop()
		time.Sleep(70 * time.Second) // within a wait of the catalog
		f.change(func() { none = true; f.dcs["dc1"].check(1, api.HealthCritical) })
		time.Sleep(catalogWait + time.Second)
		if got := r.host(web); got != "" {
			t.Errorf("web is %q, want nothing", got)
		}
		f.change(func() { none = false; f.dcs["dc1"].check(1, api.HealthPassing) })
		time.Sleep(2 * time.Second)
		r.is(f.dcs["dc1"], "web", web)
	})
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }
