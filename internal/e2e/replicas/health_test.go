package replicas

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/ashore-mesh/ashore/internal/e2e/harness"
)

// sick waits until the replicas report that number of unhealthy workloads.
func (w *world) sick(n int, replicas ...int) {
	w.t.Helper()
	for _, i := range replicas {
		harness.Eventually(w.t, fmt.Sprintf("replica %d tells of %d that are unhealthy", i, n), func() error {
			text, err := registered(w.meshes[i])
			if err == nil && strings.Count(text, `"unhealthy`) != n {
				err = fmt.Errorf("it tells %s", text)
			}
			return err
		})
	}
}

// All replicas have the health of a workload, whichever its agent reports to; while Consul is away
// that one does, and all do when it is back.
func TestHealth(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 2, "")
	for _, m := range w.meshes {
		m.Write("mesh.yaml", strings.Replace(meshFiles, "{serviceAccount: web}}",
			"{serviceAccount: web}, probe: {httpGet: {path: /, port: 18080}, periodSeconds: 1, timeoutSeconds: 1, failureThreshold: 1}}", 1))
	}
	of := w.application(0, "web-1")
	app := w.apps["web-1"]
	web1 := w.join(0, of)
	w.serve(1, "web-2")
	a := w.join(1, harness.Workload{Name: "a-1", Group: "shop/a"})
	w.agree(3)
	on := w.where(web1)
	client := a.Client(servicePort)
	client.Want(t, "web-1", call(), harness.From("web-1"))

	app.Fail.Store(true)
	w.sick(1, 0, 1)
	app.Fail.Store(false)
	w.sick(0, 0, 1)
	client.Want(t, "web-1 again", call(), harness.From("web-1"))
	w.consul.Kill()
	w.problem(0, "the store has been unavailable")
	w.problem(1, "the store has been unavailable")
	app.Fail.Store(true)
	w.sick(1, on)
	time.Sleep(time.Second)
	w.sick(0, 1-on)
	w.consul.Start()
	w.sick(1, 0, 1)
	app.Fail.Store(false)
	w.sick(0, 0, 1)
	w.agree(3)
}
