package consul

import (
	"net/http"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/consul/api"

	"github.com/ashore-mesh/ashore/internal/feed"
	"github.com/ashore-mesh/ashore/internal/lastgood"
	"github.com/ashore-mesh/ashore/registry"
)

// A Consul that counts anew since a time when ashored did not run has lost the services that it does not have, however many others are
// there: they stay, over later starts too, each until it is registered again. One that counts on has none that is gone.
func TestRestoredWhileDown(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		o     Options
		index uint64 // at the start; it was 14
		late  int    // so many answers of the names are of a server that is late
		lost  bool
	}{
		"an older state":                      {Options{}, 12, 0, true},
		"an older state, of any server":       {Options{Reads: readsStale}, 12, 0, true},
		"it was taken out":                    {Options{}, 16, 0, false},
		"nothing else happened":               {Options{}, 14, 0, false},
		"it was taken out, and one is late":   {Options{Reads: readsStale}, 16, doubts - 1, false},
		"the settings say that it is so":      {Options{Emptied: emptiedBelieve}, 12, 0, false},
		"an older state, in a datacenter":     {Options{Datacenters: []string{"dc1", "dc2"}}, 12, 0, true},
		"it was taken out in that datacenter": {Options{Datacenters: []string{"dc1", "dc2"}}, 16, 0, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				group, host := "new", "new.service.consul"
				c := newCatalogs("web", "dc2/web")
				if len(tc.o.Datacenters) > 0 {
					group, host = "dc2/new", "new.service.dc2.consul"
				}
				o, cfg := &over{c: c}, lastgood.Config[registry.Instances]{Store: &shelf{all: map[string][]byte{}}}
				f := lookOver(t, o, tc.o, cfg)
				time.Sleep(time.Minute)
				c.change(func() { c.index, c.services[group] = 13, api.HealthPassing })
				time.Sleep(time.Minute)
				f.end()
				c.change(func() { c.index = tc.index - 1; delete(c.services, group) })
				var asked atomic.Int32
				o.set(func(r *http.Request) *http.Response {
					if !ofNames("", r.URL.Path) || int(asked.Add(1)) > tc.late {
						return nil
					}
					return resp(r, http.StatusOK, 12, false, `{"web":[]}`)
				})
				want, told := "", 0
				if tc.lost {
					want, told = "healthy", 1
				}
				for start := range 3 {
					f = lookOver(t, o, tc.o, cfg)
					time.Sleep(time.Minute)
					if got := f.state(host); got != want || f.state("web.service.consul") != "healthy" || f.tells("came back without the services that it had: new;") != told {
						t.Errorf("start %d: it is %q, want %q; problems: %v", start, got, want, f.problems())
					}
					f.mu.Lock()
					if unseen := f.merged.Unseen(); len(unseen) > 0 {
						t.Errorf("start %d: what is lost counts as what was not read: %v", start, unseen)
					}
					f.mu.Unlock()
					f.end()
				}
				c.change(func() { c.services[group] = api.HealthCritical })
				f = lookOver(t, o, tc.o, cfg)
				time.Sleep(time.Minute)
				if f.is("registered again", "", 0, time.Time{}); f.state(host) != "unhealthy" {
					t.Errorf("what is registered again is %q", f.state(host))
				}
				f.end()
				c.change(func() { delete(c.services, group) })
				f = lookOver(t, o, tc.o, cfg) // what it counted before the restoration is forgotten
				defer f.end()
				time.Sleep(time.Minute)
				if f.state(host) != "" {
					t.Errorf("what was taken out since is %q; problems: %v", f.state(host), f.problems())
				}
			})
		})
	}
}

// Of a restoration while ashored runs no start hears again: what was taken out after it, while ashored did not run, is gone.
func TestRestoredBefore(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c, cfg := newCatalogs("web", "new", "old"), lastgood.Config[registry.Instances]{Store: &shelf{all: map[string][]byte{}}}
		f := c.look(t, Options{}, cfg)
		time.Sleep(time.Minute)
		c.change(func() { c.index = 2; delete(c.services, "new") })
		time.Sleep(time.Minute)
		f.end()
		c.change(func() { delete(c.services, "old") })
		f = c.look(t, Options{}, cfg)
		defer f.end()
		time.Sleep(time.Minute)
		if f.state("new.service.consul") != "healthy" || f.state("old.service.consul") != "" {
			t.Errorf("what was lost is %q, what was taken out since %q; problems: %v", f.state("new.service.consul"), f.state("old.service.consul"), f.problems())
		}
	})
}

// Marks of another Consul, or of none, say nothing.
func TestMarked(t *testing.T) {
	t.Parallel()
	k := &keeper{o: &Options{Address: "http://consul.test:8500"}}
	k.kept = map[string]feed.Update[registry.Instances]{}
	for group, mark := range map[string]string{
		"web": k.mark(35), "new": k.mark(40), "dc2/web": k.mark(50), "a": "60 http://other.test:8500", "b": "70", "c": "", "d": "x http://consul.test:8500", "/away": k.mark(80),
	} {
		k.kept[group] = feed.Update[registry.Instances]{Group: group, Mark: mark}
	}
	for at, want := range map[place]uint64{{}: 40, {Datacenter: "dc2"}: 50, {Datacenter: "dc3"}: 0} {
		if got := k.marked(at); got != want {
			t.Errorf("%+v: index %d, want %d", at, got, want)
		}
	}
}
