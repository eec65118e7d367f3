package consul

import (
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/ashore-mesh/ashore/internal/e2e/harness"
	"github.com/ashore-mesh/ashore/internal/testconsul"
)

// stormFiles are a workload that calls.
const stormFiles = `apiVersion: networking.istio.io/v1
kind: WorkloadGroup
metadata: {name: a, namespace: shop}
spec: {metadata: {labels: {app: a}}, template: {serviceAccount: a}}
`

// A service that changes a hundred times a second leads to a bounded number of pushes, and the
// proxy has its last state; calls to another service are none the worse for it.
func TestMeshStorm(t *testing.T) {
	t.Parallel()
	a := testconsul.Start(t, nil)
	c := newCatalog(t, a, "")
	m := harness.New(t, map[string]string{"mesh.yaml": stormFiles}, harness.Secure(""),
		harness.Sources(fmt.Sprintf("{name: dc1, kind: consul, address: %q, tls: {caFile: %s}, namespace: shop}",
			"https://"+a.Secure, a.CAFile)))
	register := func(id, ip string) { c.put(id, ip, servicePort, "passing", said("protocol", "http")) }
	ips := map[string]string{}
	for _, name := range []string{"odd", "even", "last", "calm"} {
		ips[name] = m.IP()
		harness.NewBackend(t, name, fmt.Sprintf("%s:%d", ips[name], servicePort))
	}
	register("hot-1", ips["even"])
	register("calm-1", ips["calm"])
	client := m.Join(harness.Workload{Name: "a-1", Group: "shop/a"}).Client(servicePort)
	hot := harness.Request{Host: "hot.service.consul"}
	client.Want(t, "before the storm", hot, harness.From("even"))
	client.Want(t, "the calm one", harness.Request{Host: "calm.service.consul"}, harness.From("calm"))
	load := harness.StartCalls(t, client, harness.Request{Host: "calm.service.consul"}, 25*time.Millisecond)

	before := pushes(t, m)
	const changes = 300
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for i := range changes {
		<-tick.C
		register("hot-1", ips[[]string{"odd", "even"}[i%2]])
	}
	register("hot-1", ips["last"])
	client.Want(t, "after the storm", hot, harness.From("last"))
	load.Stop()
	load.Clean(t, 50)
	if n := pushes(t, m) - before; n > changes/2 {
		t.Errorf("%d changes led to %d pushes of endpoints", changes, n)
	} else {
		t.Logf("%d changes, %d pushes of endpoints", changes, n)
	}
}

// pushes are how many responses with endpoints ashored has sent.
func pushes(t *testing.T, m *harness.Mesh) int {
	t.Helper()
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	resp, err := client.Get("http://" + m.Metrics() + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(body)) {
		if text, ok := strings.CutPrefix(line, `pilot_xds_pushes{type="eds"} `); ok {
			n, err := strconv.ParseFloat(strings.TrimSpace(text), 64)
			if err != nil {
				t.Fatal(err)
			}
			return int(n)
		}
	}
	return 0
}
