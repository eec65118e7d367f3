package kubernetes

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/ashore-mesh/ashore/internal/e2e/harness"
	"github.com/ashore-mesh/ashore/internal/testconsul"
)

// selecting is a Service of the cluster that selects the VMs, and a ServiceEntry that selects Pods.
const selecting = `
apiVersion: v1
kind: Service
metadata: {name: vm, namespace: shop}
spec:
  selector: {app: vm}
  ports: [{name: http, port: 80, targetPort: 8080}]
---
apiVersion: networking.istio.io/v1
kind: ServiceEntry
metadata: {name: pods, namespace: shop}
spec:
  hosts: [pods.test]
  location: MESH_INTERNAL
  resolution: STATIC
  ports: [{number: 80, name: http, protocol: HTTP, targetPort: 8080}]
  workloadSelector: {labels: {app: web}}
`

// consulService registers the service db of a machine without a proxy.
func consulService(t *testing.T, a *testconsul.Agent, ip string) {
	t.Helper()
	body := fmt.Sprintf(`{"Name": "db", "Address": %q, "Port": 80, "Meta": {"protocol": "http"}}`, ip)
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPut, "http://"+a.Address+"/v1/agent/service/register",
		strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	if err := resp.Body.Close(); err != nil || resp.StatusCode != http.StatusOK {
		t.Fatalf("register db: %s, %v", resp.Status, err)
	}
	http.DefaultClient.CloseIdleConnections()
}

// Two clusters, Consul and VMs are one mesh: a Service that both clusters have in one namespace is one
// service, and each caller reaches every service. A Service selects VMs, and a ServiceEntry Pods.
func TestMesh(t *testing.T) {
	t.Parallel()
	hub := newHub(t)
	one, two := startCluster(t, hub), startCluster(t, hub)
	one.apply(secured("shop", "web") + "---" + selecting)
	two.apply(secured("shop", "web"))
	consul := testconsul.Start(t, nil)
	hub.Forward(consul.Address, nil)
	db := hub.Attach()
	db.Backend(t, "db-1", "0.0.0.0:80")
	consulService(t, consul, db.IP)
	m := harness.New(t, map[string]string{"vm.yaml": group("vm")}, harness.At(hub),
		harness.Secure("attestors: {kubernetes: [one, two]}"), harness.Sources(source("one", one.Admin),
			source("two", two.Admin), fmt.Sprintf("{kind: consul, address: 'http://%s'}", consul.Address)))
	machine := join(t, m, hub, "vm")
	machine.Namespace.Backend(t, "vm-1", "0.0.0.0:8080")
	first, second := one.pod("shop/web-"), two.pod("shop/web-")
	one.startAgent(first, "web", one.root("shop"), m.TLS(), "--set", "workload.cluster=one")
	two.startAgent(second, "web", two.root("shop"), m.TLS(), "--set", "workload.cluster=two")

	address := one.clusterIP("shop", "web") + ":80" // HTTP finds the service by its host
	for name, ns := range map[string]*harness.Namespace{"vm": machine.Namespace, "one": first.ns, "two": second.ns} {
		client := ns.Client(t, address).Fresh()
		client.Want(t, name+" calls Consul's service", harness.Request{Host: "db.service.consul"}, answeredBy("db-1"))
		if name != "vm" {
			client.Want(t, name+" calls VMs by a Service", harness.Request{Host: "vm.shop.svc.cluster.local"},
				provenBy("web", "vm-1"))
			continue
		}
		for _, host := range []string{"web.shop.svc.cluster.local", "pods.test"} {
			for _, p := range []*pod{first, second} {
				client.Want(t, "the VM calls "+host, harness.Request{Host: host},
					provenBy("vm", strings.TrimPrefix(p.name, "shop/")))
			}
		}
	}
}
