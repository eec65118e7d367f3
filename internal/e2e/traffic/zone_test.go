package traffic

import (
	"errors"
	"strings"
	"testing"

	"github.com/ashore-mesh/ashore/internal/e2e/harness"
)

// With zoneAwareLbSetting a client uses the endpoints of its own zone, if its own service is spread
// over the zones as the other one is. Envoy knows that after the second start of its agent.
func TestZones(t *testing.T) {
	t.Parallel()
	m := harness.New(t, nil, harness.Secure(
		`mesh: {defaultConfig: {proxyMetadata: {ISTIO_META_ENABLE_SELF_DISCOVERY: "true"}}}`))
	v1, v2 := backends(t, m)
	a, b := m.IP(), m.IP()
	entry := func(host string, addresses ...string) string {
		text := service(host, addresses...)
		text = strings.Replace(text, "version: v1}", "version: v1}, locality: east/a", 1)
		return strings.Replace(text, "version: v2}", "version: v2}, locality: east/b", 1)
	}
	m.Write("zones.yaml", `apiVersion: networking.istio.io/v1
kind: WorkloadGroup
metadata: {name: client}
spec: {metadata: {labels: {app: client}}, template: {}}
---
`+entry("web.test", at(v1), at(v2))+"---\n"+
		strings.Replace(entry("client.test", "v1="+a, "v2="+b), "number: 8080", "number: 8090", 1)+
		subsets("web.test", "{loadBalancer: {zoneAwareLbSetting: {minClusterSize: 1}}}"))
	p := m.Join(harness.Workload{Name: "client", Group: "default/client", IP: a,
		Flags: []string{"--set", "workload.locality=east/a", "--set", "probe.checkPorts=false"}})
	p.Stop()
	p.Run()
	p.Ready()
	client := p.Client(port)
	harness.Eventually(t, "twenty requests in a row are answered in the client's zone", func() error {
		for range 20 {
			answer, err := client.Do(harness.Request{Host: "web.test"})
			if err = errors.Join(err, harness.From("v1")(answer)); err != nil {
				return err
			}
		}
		return nil
	})
}
