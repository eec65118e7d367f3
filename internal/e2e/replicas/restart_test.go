package replicas

import (
	"fmt"
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/ashore-mesh/ashore/internal/admin"
	"github.com/ashore-mesh/ashore/internal/e2e/harness"
)

// Replicas are restarted one after the other, as for an upgrade. No call fails, and a proxy that
// moves is not sent what it has.
func TestUpdate(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 3, "")
	web1, web2 := w.serve(0, "web-1"), w.serve(1, "web-2")
	a := w.join(2, harness.Workload{Name: "a-1", Group: "shop/a"})
	w.agree(3)
	clean := steady(t, a)
	before := updates(a)
	for name, n := range before {
		if n == 0 {
			t.Errorf("Envoy tells of none: %s", name)
		}
	}
	for i, m := range w.meshes {
		m.Ashored.Stop()
		for _, p := range []*harness.Proxy{a, web1, web2} {
			harness.Eventually(t, "it follows another replica", func() error {
				if at := w.where(p); at == i {
					return fmt.Errorf("it follows replica %d", at)
				}
				return nil
			})
		}
		w.agree(3, i)
		m.Start()
		w.agree(3)
	}
	clean()
	if after := updates(a); !maps.Equal(before, after) {
		t.Errorf("Envoy was sent what it had: before %v, after %v", before, after)
	}
}

// updates are how often an Envoy was sent clusters and listeners.
func updates(p *harness.Proxy) map[string]int {
	out := map[string]int{}
	for _, name := range []string{"cluster_manager.cds.update_success", "listener_manager.lds.update_success"} {
		out[name] = p.Stat(name)
	}
	return out
}

// All replicas start while Consul is away: each goes by its copy, of all that it knew.
func TestAllStartWithoutConsul(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 2, "")
	web1 := w.serve(0, "web-1")
	w.serve(1, "web-2")
	a := w.join(1, harness.Workload{Name: "a-1", Group: "shop/a"})
	w.agree(3)
	out, code, err := harness.Command("ashorectl", "workload", "revoke", "shop/web-2", "--reason", "test", "--socket",
		w.meshes[0].Socket())
	if err != nil || code != 0 {
		t.Fatalf("revoke: exit code %d, %v:\n%s", code, err, out)
	}
	w.agree(2)
	clean := steady(t, a)
	time.Sleep(3 * time.Second) // each replica's copy is written down
	w.consul.Kill()
	for _, m := range w.meshes {
		m.Ashored.Kill()
	}
	for _, m := range w.meshes {
		m.Start()
	}
	w.where(a)
	w.where(web1)
	w.sick(0, 0, 1)
	// since when and with whom they are connected, one of them alone knows until Consul is back
	for i, m := range w.meshes {
		if text, err := registered(m); err != nil || strings.Count(text, "\n")+1 != 2 {
			t.Errorf("replica %d tells %s, %v", i, text, err)
		}
	}
	for i, m := range w.meshes {
		list, err := admin.Send(t.Context(), m.Admin, admin.CallWorkloads, admin.None{})
		if err != nil {
			t.Fatal(err)
		}
		if len(list.Revocations) != 1 {
			t.Errorf("replica %d knows of %d revocations, want 1", i, len(list.Revocations))
		}
	}
	w.consul.Start()
	w.agree(2)
	w.problem(0)
	w.problem(1)
	clean()
}
