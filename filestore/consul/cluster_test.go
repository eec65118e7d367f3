package consul

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ashore-mesh/ashore/internal/record"
	"github.com/ashore-mesh/ashore/internal/task"
	"github.com/ashore-mesh/ashore/internal/testconsul"
)

// newCluster is three servers of one datacenter that vote; the first one leads.
func newCluster(t *testing.T) []*testconsul.Agent {
	t.Helper()
	soon := map[string]any{"server_stabilization_time": "100ms", "last_contact_threshold": "1s"}
	first := testconsul.New(t, map[string]any{"autopilot": soon, "node_name": "one"})
	all := []*testconsul.Agent{first}
	first.Start()
	for _, name := range []string{"two", "three"} {
		a := testconsul.New(t, map[string]any{"autopilot": soon, "node_name": name, "bootstrap_expect": 0,
			"retry_join": []string{first.LAN}})
		a.Start()
		all = append(all, a)
	}
	eventually(t, "three servers vote", func() bool {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet,
			"http://"+first.Address+"/v1/operator/raft/configuration", nil)
		if err != nil {
			t.Fatal(err)
		}
		return strings.Count(ask(t, req), `"Voter":true`) == 3
	})
	return all
}

// No write that was acknowledged is lost, and none is done twice, while the servers of Consul are
// killed one after the other under load: the leader first, and each replica's own.
func TestKilledServers(t *testing.T) {
	t.Parallel()
	agents := newCluster(t)
	prefix := newPrefix()
	stores := make([]*Store, len(agents))
	for i, a := range agents {
		stores[i] = site{address: "http://" + a.Address, prefix: prefix, compact: 50}.open(t)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var done, unknown atomic.Int64
	var wg sync.WaitGroup
	for _, s := range stores {
		wg.Go(func() {
			for ctx.Err() == nil {
				switch err := addOne(context.WithoutCancel(ctx), s.Records()); {
				case err == nil:
					done.Add(1)
				case errors.Is(err, ErrUnknown):
					unknown.Add(1)
				case errors.Is(err, ErrAway):
					task.Sleep(ctx, 50*time.Millisecond)
				default:
					t.Error(err)
					return
				}
			}
		})
	}
	more := func(n int64) func() bool {
		from := done.Load()
		return func() bool { return done.Load() > from+n }
	}
	eventually(t, "they write", more(50))
	for _, a := range agents {
		a.Kill()
		eventually(t, "they write while one server is away", more(30))
		a.Start()
		eventually(t, "they write when it is back", more(30))
	}
	cancel()
	wg.Wait()
	for _, s := range stores { // who is not goes by memory
		eventually(t, "all are in touch", func() bool { return s.Standing().Error == "" })
	}
	r, err := stores[0].Records().Get(t.Context(), record.Key{Table: "t", Name: "count"})
	if err != nil {
		t.Fatal(err)
	}
	if n := int64(number(t, string(r.Value))); n < done.Load() || n > done.Load()+unknown.Load() {
		t.Errorf("%d were acknowledged and of %d nobody knows, and the count is %d", done.Load(), unknown.Load(), n)
	}
	t.Logf("%d acknowledged, %d unknown, %d entries", done.Load(), unknown.Load(),
		stores[0].Revisions()["identity"])
	for _, s := range stores[1:] {
		equalStates(t, stores[0], s)
	}
}
