package consul

import (
	"context"
	"fmt"
	"sync"
	"testing"

	"github.com/ashore-mesh/ashore/internal/admin"
	"github.com/ashore-mesh/ashore/internal/e2e/harness"
)

// watched holds the endpoints of a host, as ashored streams them.
type watched struct {
	t    *testing.T
	mu   sync.Mutex
	last map[string]admin.Endpoint // guarded by mu: by workload
}

// watch watches until the test ends, or ashored does.
func watch(t *testing.T, m *harness.Mesh, host string) *watched {
	w := &watched{t: t}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		// an error is that of an ashored that is killed: what was seen until then is what is asked
		// for
		_ = m.Admin.Services(ctx, admin.ServiceQuery{Host: host, Endpoints: true, Watch: true},
			func(e admin.ServiceEvent) error {
				if e.Event != admin.ServicesListed {
					w.take(e.Service.Endpoints)
				}
				return nil
			})
	}()
	t.Cleanup(func() { cancel(); <-done })
	return w
}

func (w *watched) take(all []admin.Endpoint) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.last = map[string]admin.Endpoint{}
	for _, e := range all {
		w.last[e.Workload] = e
	}
}

// is waits until a workload is among the endpoints with that health and identity; empty: until it
// is none.
func (w *watched) is(workload, health, identity string) {
	w.t.Helper()
	harness.Eventually(w.t, workload+" is "+health, func() error {
		w.mu.Lock()
		defer w.mu.Unlock()
		got, ok := w.last[workload]
		if ok != (health != "") || got.Health != health || got.Identity != identity || ok && got.From.Source != "consul:dc1" {
			return fmt.Errorf("it is %+v among %d", got, len(w.last))
		}
		return nil
	})
}
