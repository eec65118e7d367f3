package consul

import (
	"context"
	"fmt"
	"testing"

	"github.com/ashore-mesh/ashore/internal/admin"
	"github.com/ashore-mesh/ashore/internal/e2e/harness"
)

// watched asks for the endpoints of a host.
type watched struct {
	t    *testing.T
	mesh *harness.Mesh
	host string
}

// is waits until a workload is among the endpoints with that health and identity; empty: until it
// is none.
func (w *watched) is(workload, health, identity string) {
	w.t.Helper()
	harness.Eventually(w.t, workload+" is "+health, func() error {
		services, err := admin.Send(context.Background(), w.mesh.Admin, admin.CallServices,
			admin.ServiceQuery{Host: w.host, Endpoints: true})
		if err != nil {
			return err
		}
		var got admin.Endpoint
		for _, e := range services[0].Endpoints {
			if e.Workload == workload {
				got = e
			}
		}
		if got.Health != health || got.Identity != identity || health != "" && got.From.Source != "consul:dc1" {
			return fmt.Errorf("it is %+v among %d", got, len(services[0].Endpoints))
		}
		return nil
	})
}
