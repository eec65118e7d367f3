package consul

import (
	"fmt"
	"net/http"
	"strings"
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
