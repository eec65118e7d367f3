package consul

import (
	"fmt"
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

// numbered are the names of n services.
func numbered(n int) (names []string) {
	for i := range n {
		names = append(names, fmt.Sprintf("s%d", i))
	}
	return names
}

// follows fails where a service that becomes critical is told to be healthy an hour later.
func (f *following) follows(c *catalogs, names []string) {
	f.t.Helper()
	c.change(func() {
		for _, name := range names {
			c.services[name] = api.HealthCritical
		}
	})
	time.Sleep(time.Hour)
	deaf := 0
	for _, name := range names {
		if f.state(name+".service.consul") != "unhealthy" {
			deaf++
		}
	}
	if deaf > 0 {
		f.t.Errorf("an hour after %d services became critical, %d of them are told to be healthy; problems: %v", len(names), deaf, f.problems())
	}
}

// Services that were looked at because there were too many are watched by themselves when there are few again, also where they
// were looked at once more after a restoration.
func TestFewAgain(t *testing.T) {
	t.Parallel()
	for _, restored := range []bool{false, true} {
		t.Run(fmt.Sprint("restored ", restored), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				names := numbered(90) // there is room for 88
				c := newCatalogs(names...)
				f := c.look(t, Options{}, lastgood.Config[registry.Instances]{})
				defer f.end()
				time.Sleep(30 * time.Minute)
				if restored {
					c.change(func() { c.index = 3 })
					time.Sleep(30 * time.Minute)
				}
				c.change(func() {
					for _, name := range names[50:] {
						delete(c.services, name)
					}
				})
				time.Sleep(30 * time.Minute)
				f.follows(c, names[:50])
			})
		})
	}
}

// busyUntil refuses questions about some services until a time.
func busyUntil(end time.Time) func(*http.Request) *http.Response {
	return func(r *http.Request) *http.Response {
		if time.Now().After(end) || !strings.HasPrefix(r.URL.Path, "/v1/health/service/s1") {
			return nil
		}
		return resp(r, http.StatusTooManyRequests, 0, false, "Your IP is issuing too many concurrent connections")
	}
}

// Services that gave up their connections because Consul refused are watched when it takes them again.
func TestTakenAgain(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		names := numbered(70)
		c := newCatalogs(names...)
		o := &over{c: c}
		f := lookOver(t, o, Options{}, lastgood.Config[registry.Instances]{})
		defer f.end()
		time.Sleep(30 * time.Minute)
		for range 2 {
			o.set(busyUntil(time.Now().Add(300 * time.Millisecond)))
			c.change(func() {})
			time.Sleep(10 * time.Second)
		}
		time.Sleep(6 * time.Hour)
		f.follows(c, names)
	})
}

// meanwhile is a service new, which runs on a node of its own, and whose answers are a second on their way. One check of it, or
// of its node, is another a while after it is there.
type meanwhile struct {
	check         string // the service that the check is of; empty: the node
	before, after string // its state
	turned        chan struct{}

	mu           sync.Mutex
	there, other bool // guarded by mu
}

// says is the state of the check, the index of that, and whether the service is there.
func (m *meanwhile) says() (state string, index uint64, there bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.other {
		return m.after, 60, m.there
	}
	return m.before, 50, m.there
}

func (m *meanwhile) answer(r *http.Request) *http.Response {
	q := r.URL.Query()
	state, index, there := m.says()
	if wait, err := time.ParseDuration(q.Get("wait")); err == nil && q.Get("index") == fmt.Sprint(index) {
		turned := m.turned
		if state == m.after {
			turned = nil // it turns once
		}
		select {
		case <-turned:
		case <-time.After(wait):
		case <-r.Context().Done():
		}
		state, index, there = m.says()
	}
	switch r.URL.Path {
	case "/v1/health/state/critical":
		if !there || state != api.HealthCritical {
			return resp(r, 200, index, false, `[]`)
		}
		return resp(r, 200, index, false, fmt.Sprintf(`[{"Node":"nx","CheckID":"c","ServiceName":%q,"Status":"critical","ModifyIndex":%d}]`, m.check, index))
	case "/v1/health/service/new":
		if q.Get("filter") == nothing {
			return resp(r, 200, index, false, `[]`)
		}
		time.Sleep(time.Second)
		return resp(r, 200, index, false, fmt.Sprintf(`[{"Node":{"Node":"nx","Address":"10.0.0.9","Datacenter":"dc1"},"Service":{"ID":"1","Service":"new","Port":80},`+
			`"Checks":[{"Node":"nx","CheckID":"c","ServiceName":%q,"Status":%q}]}]`, m.check, state))
	}
	return nil
}

// A check that turns while the first answer about a service is on its way is heard of, also among many services: one of the service,
// and one of a node of which nobody knew that it runs there.
func TestTurnsMeanwhile(t *testing.T) {
	t.Parallel()
	for name, m := range map[string]*meanwhile{
		"the service fails": {check: "new", before: api.HealthPassing, after: api.HealthCritical},
		"the node fails":    {before: api.HealthPassing, after: api.HealthCritical},
		"the service mends": {check: "new", before: api.HealthCritical, after: api.HealthPassing},
		"the node mends":    {before: api.HealthCritical, after: api.HealthPassing},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				m.turned = make(chan struct{})
				c := newCatalogs(numbered(90)...) // there is room for 88
				f := lookOver(t, &over{c: c, f: m.answer}, Options{}, lastgood.Config[registry.Instances]{})
				defer f.end()
				time.Sleep(30 * time.Minute)
				m.mu.Lock()
				m.there = true
				m.mu.Unlock()
				c.change(func() { c.services["new"] = api.HealthPassing })
				time.Sleep(500 * time.Millisecond)
				m.mu.Lock()
				m.other = true
				m.mu.Unlock()
				close(m.turned)
				time.Sleep(time.Minute)
				want := map[string]string{api.HealthPassing: "healthy", api.HealthCritical: "unhealthy"}[m.after]
				if got := f.state("new.service.consul"); got != want {
					t.Errorf("a minute after the check turned it is %q, want %q", got, want)
				}
			})
		})
	}
}

// What a look at the leader finds changed is not read from a server that does not know of it yet.
func TestLateServer(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := newCatalogs(numbered(90)...) // there is room for 88
		o := &over{c: c}
		f := lookOver(t, o, Options{Reads: readsStale}, lastgood.Config[registry.Instances]{})
		defer f.end()
		time.Sleep(30 * time.Minute)
		known := time.Now().Add(time.Second)
		before := `[{"Node":{"Node":"n","Address":"10.0.0.1","Datacenter":"dc1"},"Service":{"ID":"1","Service":"s1","Port":80},"Checks":[]}]`
		o.set(func(r *http.Request) *http.Response {
			q := r.URL.Query()
			if r.URL.Path != "/v1/health/service/s1" || !q.Has("stale") || q.Has("index") || time.Now().After(known) {
				return nil
			}
			return resp(r, 200, 10, false, before)
		})
		f.follows(c, []string{"s1"})
	})
}

// A service that there is has instances, also where a server that is late, or the memory of an agent, knows of none yet.
func TestLateEmpty(t *testing.T) {
	t.Parallel()
	for _, reads := range []string{readsStale, readsCached} {
		t.Run(reads, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				c := newCatalogs(numbered(90)...)
				o := &over{c: c}
				o.set(func(r *http.Request) *http.Response {
					q := r.URL.Query()
					if r.URL.Path != "/v1/health/service/new" || !q.Has("stale") && !q.Has("cached") || q.Has("index") {
						return nil
					}
					return resp(r, 200, 5, false, "[]")
				})
				f := lookOver(t, o, Options{Reads: reads, Connections: 8}, lastgood.Config[registry.Instances]{})
				defer f.end()
				time.Sleep(30 * time.Minute)
				c.change(func() { c.services["new"] = api.HealthPassing })
				time.Sleep(time.Minute)
				if got := f.state("new.service.consul"); got != "healthy" {
					t.Errorf("it is %q", got)
				}
			})
		})
	}
}

// A Consul that was filled anew may have come to the index of a service by another content: that counts, also where services are looked at by
// their index.
func TestSameIndexAnew(t *testing.T) {
	t.Parallel()
	for _, connections := range []int{leastConnections, 100} {
		t.Run(fmt.Sprint(connections), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				w := newTwin("")
				fill := func(address int, names ...string) {
					for id, name := range names {
						w.dcs[""].register(id, name, address+id)
					}
				}
				fill(10, "web", "pay", "db")
				f := lookOver(t, w, Options{Connections: connections}, lastgood.Config[registry.Instances]{})
				defer f.end()
				time.Sleep(time.Minute)
				w.change(func() {
					w.dcs[""] = newTwinDC(100)
					fill(20, "web", "pay")
					w.cuts++
				})
				time.Sleep(time.Minute)
				for _, name := range []string{"web", "pay"} {
					if got, want := f.all(name+".service.consul"), w.is("", name); got != want {
						t.Errorf("%s is %q, want %q", name, got, want)
					}
				}
				if got, want := f.all("db.service.consul"), "10.0.1.12 healthy"; got != want {
					t.Errorf("what is lost is %q, want %q; problems: %v", got, want, f.problems())
				}
			})
		})
	}
}
