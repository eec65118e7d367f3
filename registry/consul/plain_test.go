package consul

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/consul/api"
)

// Over plain HTTP at most 100 services are watched at once. The others are polled, and a warning
// names the remedy.
func TestPlainHTTP(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		services int
		shared   bool
		blocked  int // blocking queries, including the one for the catalog
		within   time.Duration
		want     string
	}{
		"few":         {100, false, 101, time.Second, ""},
		"many":        {300, false, 101, pollGap + time.Second, "300 services over plain HTTP: 100 are watched"},
		"many, HTTP2": {300, true, 301, time.Second, ""},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				f := newFakeConsul("dc1")
				d := f.dcs["dc1"]
				for i := range tc.services {
					d.register(i, fmt.Sprint("s", i))
				}
				r := receive(t, f, Options{}, tc.shared)
				defer r.stop()
				time.Sleep(5 * time.Second)
				f.mu.Lock()
				blocked := f.blocked
				f.mu.Unlock()
				if blocked != tc.blocked {
					t.Errorf("%d blocking queries, want %d", blocked, tc.blocked)
				}
				got := r.problems("/agent's datacenter")
				if !strings.Contains(got, tc.want) || strings.Contains(got, "https") != (tc.want != "") {
					t.Errorf("the problem is %q, want %q", got, tc.want)
				}
				for i := range tc.services {
					f.change(func() { d.check(i, api.HealthCritical) })
				}
				time.Sleep(tc.within)
				for i := range tc.services {
					r.is(d, fmt.Sprint("s", i), fmt.Sprintf("s%d.service.consul", i))
				}
			})
		})
	}
}
