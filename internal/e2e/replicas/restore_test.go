package replicas

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"testing"

	"github.com/hashicorp/consul/api"

	"github.com/ashore-mesh/ashore/internal/admin"
	"github.com/ashore-mesh/ashore/internal/e2e/harness"
)

// Consul is restored from a snapshot under replicas that run: connected workloads are registered
// again, later revocations stay in force, and writes continue. No call
// fails.
func TestConsulRestored(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 2, "")
	w.serve(0, "web-1")
	w.serve(1, "web-2")
	a := w.join(1, harness.Workload{Name: "a-1", Group: "shop/a"})
	w.join(1, harness.Workload{Name: "a-2", Group: "shop/a"})
	w.agree(4)
	transport := &http.Transport{}
	defer transport.CloseIdleConnections()
	c, err := api.NewClient(&api.Config{Address: w.consul.Address, HttpClient: &http.Client{Transport: transport}})
	if err != nil {
		t.Fatal(err)
	}
	saved, _, err := c.Snapshot().Save(nil)
	if err != nil {
		t.Fatal(err)
	}
	raw, err := io.ReadAll(saved)
	if err != nil {
		t.Fatal(err)
	}
	if err := saved.Close(); err != nil {
		t.Fatal(err)
	}

	clean := steady(t, a)
	w.serve(0, "web-3")
	out, code, err := harness.Command("ashorectl", "workload", "revoke", "shop/a-2", "--reason", "test", "--socket",
		w.meshes[0].Socket())
	if err != nil || code != 0 {
		t.Fatalf("revoke: exit code %d, %v:\n%s", code, err, out)
	}
	w.agree(4) // a-1 and three of web
	if err := c.Snapshot().Restore(nil, bytes.NewReader(raw)); err != nil {
		t.Fatal(err)
	}
	a.Client(servicePort).Want(t, "who joined since", call(), harness.From("web-3"))
	for i, m := range w.meshes {
		harness.Eventually(t, fmt.Sprintf("replica %d knows who is revoked, and that it is kept", i), func() error {
			list, err := admin.Send(context.Background(), m.Admin, admin.CallWorkloads, admin.None{})
			if err == nil && len(list.Revocations) != 1 {
				err = fmt.Errorf("it knows of %+v", list.Revocations)
			}
			return err
		})
	}
	w.agree(5) // what the snapshot has of a-2 lasts for the restart grace, and web-3 is there
	w.serve(1, "web-4")
	w.agree(6)
	clean()
}
