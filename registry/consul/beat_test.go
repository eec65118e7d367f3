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

// hanging is a Consul that hangs at times, as one that is stopped does: it takes questions, and answers none.
type hanging struct {
	c http.RoundTripper

	mu sync.Mutex
	// the following are guarded by mu
	dc    string // of which it answers nothing; "*": of all
	until chan struct{}
	cut   bool // who waited when it began is never answered, as over connections that were cut in silence
}

// hang has it answer nothing of a datacenter until the returned function is called.
func (h *hanging) hang(dc string) (end func()) {
	h.mu.Lock()
	defer h.mu.Unlock()
	until := make(chan struct{})
	h.dc, h.until = dc, until
	return func() {
		h.mu.Lock()
		defer h.mu.Unlock()
		h.dc = ""
		close(until)
	}
}

func (h *hanging) RoundTrip(r *http.Request) (*http.Response, error) {
	if err := h.wait(r, false); err != nil {
		return nil, err
	}
	resp, err := h.c.RoundTrip(r)
	if err := h.wait(r, h.cut); err != nil { // who waited for a change hears of it no more than others
		return nil, err
	}
	return resp, err
}

func (h *hanging) wait(r *http.Request, dead bool) error {
	h.mu.Lock()
	hangs, until := h.dc == "*" || h.dc != "" && h.dc == r.URL.Query().Get("dc"), h.until
	h.mu.Unlock()
	if !hangs {
		return nil
	}
	if dead {
		until = nil
	}
	select {
	case <-until:
		return nil
	case <-r.Context().Done():
		return r.Context().Err()
	}
}

// A Consul that hangs is away from when it said something last: that is noticed within a minute, and the outage is over when it
// answers again. What waits for changes goes on waiting; what it missed meanwhile is asked for.
func TestHang(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := newCatalogs("web")
		o := &hanging{c: c}
		f := lookOver(t, o, Options{}, lastgood.Config[registry.Instances]{})
		defer f.end()
		time.Sleep(time.Hour + 7*time.Second)
		f.is("before", "", 0, time.Time{})
		began := time.Now()
		end := o.hang("*")
		time.Sleep(time.Minute)
		s := f.stands()
		if !strings.Contains(s.Error, "does not answer within 10s") || s.Since.After(began) || began.Sub(s.Since) > beatGap+beatGap/16 {
			t.Fatalf("a minute after it hangs it stands with %+v, %v before; problems: %v", s, began.Sub(s.Since), f.problems())
		}
		time.Sleep(time.Hour)
		if now := f.stands(); !now.Since.Equal(s.Since) {
			t.Errorf("an hour later it is away since %v, a minute after the beginning since %v", now.Since, s.Since)
		}
		end()
		c.change(func() { c.services["web"] = api.HealthCritical })
		time.Sleep(5 * time.Second)
		f.is("after", "", 0, time.Time{})
		if got := f.state("web.service.consul"); got != "unhealthy" || len(f.problems()) > 0 {
			t.Errorf("after the hang the service is %q; problems: %v", got, f.problems())
		}
	})
}

// When connections were cut in silence, what waits for changes by them asks anew as soon as Consul answers by others.
func TestCutInSilence(t *testing.T) {
	t.Parallel()
	for name, services := range map[string]int{"few": 3, "a crowd": 150} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				c := newCatalogs(numbered(services)...)
				o := &hanging{c: c, cut: true}
				f := lookOver(t, o, Options{}, lastgood.Config[registry.Instances]{})
				defer f.end()
				time.Sleep(time.Hour + 5*time.Minute)
				end := o.hang("*")
				time.Sleep(time.Minute)
				c.change(func() { c.services["s2"], c.services["new"] = api.HealthCritical, api.HealthPassing })
				synctest.Wait()
				end()
				time.Sleep(10 * time.Second)
				f.is("after", "", 0, time.Time{})
				if old, added := f.state("s2.service.consul"), f.state("new.service.consul"); old != "unhealthy" || added != "healthy" {
					t.Errorf("what became critical is %q, and what is new %q; problems: %v", old, added, f.problems())
				}
			})
		})
	}
}

// A datacenter that hangs is away alone.
func TestHangOfOne(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := newCatalogs("web", "dc2/web")
		o := &hanging{c: c}
		f := lookOver(t, o, Options{Datacenters: []string{"dc1", "dc2"}}, lastgood.Config[registry.Instances]{})
		defer f.end()
		time.Sleep(time.Hour + 7*time.Second)
		began := time.Now()
		end := o.hang("dc2")
		time.Sleep(time.Minute)
		if s := f.stands(); s.Error != "" || s.Stale != 1 || s.StaleSince().After(began) || f.tells("does not answer within 10s") != 1 {
			t.Errorf("it stands with %+v; problems: %v", s, f.problems())
		}
		end()
		time.Sleep(5 * time.Second)
		f.is("after", "", 0, time.Time{})
	})
}

// A source that begins with a Consul which hangs says so within half a minute, and what was kept of a datacenter stands in for it.
func TestHangAtStart(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		o  Options
		dc string
	}{
		"all of it":               {Options{}, "*"},
		"where it is to be asked": {Options{Datacenters: []string{"dc1", "dc2"}}, "*"},
		"one of several":          {Options{Datacenters: []string{"dc1", "dc2"}}, "dc2"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				c := newCatalogs("web", "dc2/web")
				o := &hanging{c: c}
				end := o.hang(tc.dc)
				f := lookOver(t, o, tc.o, lastgood.Config[registry.Instances]{})
				defer f.end()
				time.Sleep(30 * time.Second)
				if s := f.stands(); !strings.Contains(s.Error, "does not answer within 10s") {
					t.Errorf("half a minute after the start it stands with %+v; problems: %v", s, f.problems())
				}
				end()
				time.Sleep(5 * time.Second)
				f.is("after", "", 0, time.Time{})
			})
		})
	}
}

// While nothing happens, one small question each 20 seconds is all that is asked.
func TestIdle(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		asked := map[string]int{}
		o := &over{c: newCatalogs(numbered(50)...)}
		f := lookOver(t, o, Options{}, lastgood.Config[registry.Instances]{})
		defer f.end()
		time.Sleep(time.Minute)
		count := make(chan string, 1000)
		o.set(func(r *http.Request) *http.Response { count <- r.URL.Path; return nil })
		time.Sleep(5 * time.Minute)
		synctest.Wait()
		for close(count); ; {
			path, ok := <-count
			if !ok {
				break
			}
			asked[path]++
		}
		o.set(nil)
		if n := asked["/v1/catalog/node/"+sentinel]; len(asked) != 1 || n < 14 || n > 16 {
			t.Errorf("in five minutes of idleness were asked %v, want about 15 for %s", asked, sentinel)
		}
	})
}
