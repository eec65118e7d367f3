package consul

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/ashore-mesh/ashore/internal/e2e/harness"
	"github.com/ashore-mesh/ashore/internal/testconsul"
)

// insideFiles are workloads that register themselves, and their service, which is not in Consul.
const insideFiles = `apiVersion: networking.istio.io/v1
kind: WorkloadGroup
metadata: {name: shop, namespace: shop}
spec: {metadata: {labels: {app: shop}}, template: {serviceAccount: shop}}
---
apiVersion: networking.istio.io/v1
kind: Sidecar
metadata: {name: shop, namespace: shop}
spec:
  workloadSelector: {labels: {app: shop}}
  ingress: [{port: {number: 8080, name: http, protocol: HTTP}, defaultEndpoint: "0.0.0.0:18080"}]
---
apiVersion: networking.istio.io/v1
kind: ServiceEntry
metadata: {name: shop, namespace: shop}
spec:
  hosts: [shop.inside]
  location: MESH_INTERNAL
  resolution: STATIC
  ports: [{number: 8080, name: http, protocol: HTTP}]
  workloadSelector: {labels: {app: shop}}
`

// What is outside the mesh finds a workload inside by Consul, and calls it. The entry outlives a
// restart of ashored, and goes when the settings do not name it any more.
func TestMeshExported(t *testing.T) {
	t.Parallel()
	a := testconsul.Start(t, nil)
	c := newCatalog(t, a, "")
	source := fmt.Sprintf("{name: dc1, kind: consul, address: %q, tls: {caFile: %s}, namespace: shop",
		"https://"+a.Secure, a.CAFile)
	m := harness.New(t, map[string]string{"mesh.yaml": insideFiles}, harness.Secure(""),
		harness.Sources(source+", export: {owner: inside, hosts: [\"*.inside\"]}}"))
	ip := m.IP()
	harness.NewBackend(t, "shop-1", fmt.Sprintf("%s:%d", ip, appPort))
	m.Join(harness.Workload{Name: "shop-1", Group: "shop/shop", IP: ip})
	want := fmt.Sprintf("%s:%d passing", ip, servicePort)
	c.shows(t, "shop", want)

	list, _, err := c.c.Health().Service("shop", "", true, nil)
	if err != nil || len(list) != 1 {
		t.Fatalf("%+v, %v", list, err)
	}
	answers(t, "a call from outside", fmt.Sprintf("http://%s:%d/", list[0].Service.Address, list[0].Service.Port),
		`"shop-1"`)

	stop := c.watches(t, "shop", want)
	m.Ashored.Stop()
	m.Start()
	wantSource(t, m, "consul:dc1", "")
	answers(t, "it registers again", "http://"+m.Metrics()+"/metrics", `ashore_export_entries{source="consul:dc1"} 1`)
	m.Reload(source + `, export: {owner: inside, hosts: ["shop.*"], tags: [anew]}}`)
	harness.Eventually(t, "it has another tag", func() error {
		list, _, err := c.c.Health().Service("shop", "anew", true, nil)
		if err != nil || len(list) != 1 {
			return fmt.Errorf("%+v, %v", list, err)
		}
		return nil
	})
	stop()
	m.Reload(source + "}")
	c.shows(t, "shop")
	wantSource(t, m, "consul:dc1", "")
}

// answers waits until a URL answers with a text.
func answers(t *testing.T, what, url, text string) {
	t.Helper()
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	harness.Eventually(t, what, func() error {
		resp, err := client.Get(url)
		if err != nil {
			return err
		}
		defer resp.Body.Close()
		body, err := io.ReadAll(resp.Body)
		if err != nil || !strings.Contains(string(body), text) {
			return fmt.Errorf("status %d, %v: %.200s", resp.StatusCode, err, body)
		}
		return nil
	})
}
