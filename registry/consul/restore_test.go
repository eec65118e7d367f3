package consul

import (
	"net/http"
	"net/http/httptrace"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/consul/api"

	"github.com/ashore-mesh/ashore/internal/lastgood"
	"github.com/ashore-mesh/ashore/registry"
)

// restorable is a Consul whose state is restored, as 1.22.3 behaves: waits for names and for a node that there is not end with what
// there was before, those for instances do not, and whoever asks by an index from before waits for as long as he says, and a sixteenth.
type restorable struct {
	c *catalogs

	mu       sync.Mutex
	index    uint64        // guarded by mu
	restored chan struct{} // closed then
}

// restore has another state be there, with a lower index.
func (s *restorable) restore(index uint64, f func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.c.change(func() { f(); s.c.index = index - 1 })
	s.index = index
	close(s.restored)
}

func (s *restorable) RoundTrip(r *http.Request) (*http.Response, error) {
	q := r.URL.Query()
	index, _ := strconv.ParseUint(q.Get("index"), 10, 64) // 0 where there is none
	wait, _ := time.ParseDuration(q.Get("wait"))
	s.mu.Lock()
	now, before := s.index, !isClosed(s.restored)
	s.mu.Unlock()
	if index >= now {
		restored := s.restored
		if !before || strings.HasPrefix(r.URL.Path, "/v1/health/service/") {
			restored = nil
		}
		select {
		case <-r.Context().Done():
			return nil, r.Context().Err()
		case <-time.After(wait + wait/16):
		case <-restored:
			if trace := httptrace.ContextClientTrace(r.Context()); trace != nil {
				trace.GotFirstResponseByte()
			}
			body := map[bool]string{true: `{"web":[]}`, false: `null`}[ofNames("", r.URL.Path)]
			return resp(r, http.StatusOK, now, false, body), nil
		}
	}
	r = r.Clone(r.Context())
	q.Del("index")
	r.URL.RawQuery = q.Encode()
	return s.c.RoundTrip(r)
}

// A restoration is noticed whenever it comes: also when a wait for it was about to end by itself.
func TestRestorationNoticed(t *testing.T) {
	t.Parallel()
	for _, after := range []time.Duration{10 * time.Second, 19500 * time.Millisecond, 20700 * time.Millisecond, 50 * time.Second, 636 * time.Second} {
		t.Run(after.String(), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				c := newCatalogs("web")
				s := &restorable{c: c, index: c.index, restored: make(chan struct{})}
				f := lookOver(t, s, Options{}, lastgood.Config[registry.Instances]{})
				defer f.end()
				time.Sleep(after)
				s.restore(4, func() { c.services["web"] = api.HealthCritical })
				time.Sleep(5 * time.Second)
				if got := f.state("web.service.consul"); got != "unhealthy" {
					t.Errorf("5 seconds after the restoration the service is %q; problems: %v", got, f.problems())
				}
			})
		})
	}
}

// A wait ended before its time when it did; not one that took as long as Consul allows, each time.
func TestEarly(t *testing.T) {
	t.Parallel()
	var e early
	for _, step := range []struct {
		took, wait time.Duration
		want       bool
	}{
		{20 * time.Second, 20 * time.Second, false},
		{21 * time.Second, 20 * time.Second, false},
		{19 * time.Second, 20 * time.Second, true},
		{5 * time.Second, 20 * time.Second, true},
		{5 * time.Second, 20 * time.Second, false}, // max_query_time
		{time.Second, 20 * time.Second, true},
	} {
		if got := e.before(step.took, step.wait); got != step.want {
			t.Errorf("%v of %v: %v, want %v", step.took, step.wait, got, step.want)
		}
	}
}
