package consul

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/consul/api"

	"github.com/ashore-mesh/ashore/internal/admin"
	"github.com/ashore-mesh/ashore/internal/e2e/harness"
	"github.com/ashore-mesh/ashore/internal/testconsul"
)

// Where services listen for their callers, and where the applications behind their proxies do.
const servicePort, appPort = 8080, 18080

// meshFiles are two groups of workloads, and what holds for the hosts of Consul as for any other.
const meshFiles = `apiVersion: networking.istio.io/v1
kind: WorkloadGroup
metadata: {name: a, namespace: shop}
spec: {metadata: {labels: {app: a}}, template: {serviceAccount: a}}
---
apiVersion: networking.istio.io/v1
kind: WorkloadGroup
metadata: {name: web, namespace: shop}
spec: {metadata: {labels: {app: web}}, template: {serviceAccount: web}}
---
apiVersion: networking.istio.io/v1
kind: Sidecar
metadata: {name: web, namespace: shop}
spec:
  workloadSelector: {labels: {app: web}}
  ingress: [{port: {number: 8080, name: http, protocol: HTTP}, defaultEndpoint: "0.0.0.0:18080"}]
  egress: [{hosts: ["~/*"]}]
---
apiVersion: security.istio.io/v1
kind: PeerAuthentication
metadata: {name: default, namespace: shop}
spec: {mtls: {mode: STRICT}}
---
apiVersion: security.istio.io/v1
kind: AuthorizationPolicy
metadata: {name: web, namespace: shop}
spec: {selector: {matchLabels: {app: web}}, rules: [{from: [{source: {principals: [cluster.local/ns/shop/sa/a]}}]}]}
---
apiVersion: networking.istio.io/v1
kind: DestinationRule
metadata: {name: web, namespace: shop}
spec:
  host: web.service.consul
  subsets: [{name: one, labels: {version: "1"}}, {name: two, labels: {version: "2"}}]
---
apiVersion: networking.istio.io/v1
kind: VirtualService
metadata: {name: web, namespace: shop}
spec:
  hosts: [web.service.consul]
  http:
  - {match: [{headers: {want: {exact: "2"}}}], route: [{destination: {host: web.service.consul, subset: two}}]}
  - {match: [{headers: {want: {exact: "1"}}}], route: [{destination: {host: web.service.consul, subset: one}}]}
  - {route: [{destination: {host: web.service.consul}}]}
`

// serves registers a member of web in Consul, joins it to the mesh, and starts its application.
func serves(t *testing.T, m *harness.Mesh, c catalog, id, version string) {
	t.Helper()
	b := harness.NewBackend(t, id, fmt.Sprintf("%s:%d", m.IP(), appPort))
	ip, _, _ := strings.Cut(b.Address, ":")
	c.put(id, ip, servicePort, "passing", tagged("version="+version),
		said("protocol", "http", "ashore-service-account", "web"))
	m.Join(harness.Workload{Name: id, Group: "shop/web", IP: ip})
}

// wantSource waits until a problem of a source of ashored has this text. An empty text means that
// there is none.
func wantSource(t *testing.T, m *harness.Mesh, name, trouble string) {
	t.Helper()
	harness.Eventually(t, fmt.Sprintf("source %s with %q", name, trouble), func() error {
		s, err := admin.Send(context.Background(), m.Admin, admin.CallStatus, admin.None{})
		if err != nil {
			return err
		}
		for _, src := range s.Sources {
			if src.Name == name && (trouble == "" && src.Error == "" && src.Synced || trouble != "" &&
				strings.Contains(src.Error, trouble)) {
				return nil
			}
		}
		return fmt.Errorf("it stands as %+v", s.Sources)
	})
}

// Real calls between workloads that are known by their registrations in Consul: with mutual TLS,
// policies, routes and subsets; while instances come, fall ill and go; while Consul is away, and
// ashored starts meanwhile. Not one may fail.
func TestMesh(t *testing.T) {
	t.Parallel()
	a := testconsul.Start(t, nil)
	c := newCatalog(t, a, "")
	m := harness.New(t, map[string]string{"mesh.yaml": meshFiles}, harness.Secure(""),
		harness.Sources(fmt.Sprintf("{name: dc1, kind: consul, address: %q, tls: {caFile: %s}, namespace: shop}",
			"https://"+a.Secure, a.CAFile)))
	serves(t, m, c, "web-1", "1")
	wantSource(t, m, "consul:dc1", "")
	client := m.Join(harness.Workload{Name: "a-1", Group: "shop/a"}).Client(servicePort)
	call := harness.Request{Host: "web.service.consul"}
	client.Want(t, "by the short name", call, harness.From("web-1"))
	client.Want(t, "by the datacenter's", harness.Request{Host: "web.service.dc1.consul"}, harness.From("web-1"))
	load := harness.StartCalls(t, client, call, 25*time.Millisecond)

	t.Log("subsets by tags")
	serves(t, m, c, "web-2", "2")
	want := func(version string) harness.Request {
		return harness.Request{Host: call.Host, Header: map[string]string{"want": version}}
	}
	client.Want(t, "version 2", want("2"), harness.From("web-2"))
	client.Want(t, "version 1", want("1"), harness.From("web-1"))

	t.Log("a flap")
	const who = "spiffe://cluster.local/ns/shop/sa/web"
	watch := &watched{t, m, "web.service.consul"}
	watch.is("web-2", "healthy", who)
	c.health("web-2", "critical")
	client.Want(t, "no healthy version 2", want("2"), harness.Status(503))
	watch.is("web-2", "unhealthy", who)
	c.health("web-2", "passing")
	client.Want(t, "version 2 again", want("2"), harness.From("web-2"))
	watch.is("web-2", "healthy", who)

	t.Log("maintenance")
	_, err := c.c.Catalog().Register(&api.CatalogRegistration{Node: "node-of-web-2", Address: "10.9.9.9",
		SkipNodeUpdate: true,
		Check: &api.AgentCheck{Node: "node-of-web-2", CheckID: "_node_maintenance", Name: "maintenance",
			Status: "critical"}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	client.Want(t, "version 2 in maintenance", want("2"), harness.Status(503))
	watch.is("web-2", "draining", who)
	c.remove("web-2")
	watch.is("web-2", "", "")

	t.Log("killed, and a cold start of ashored meanwhile")
	time.Sleep(3 * time.Second) // until the content of Consul is saved
	a.Kill()
	wantSource(t, m, "consul:dc1", "cannot be reached")
	m.Ashored.Kill()
	m.Start()
	wantSource(t, m, "consul:dc1", "cannot be reached")
	late := m.Join(harness.Workload{Name: "a-2", Group: "shop/a"}).Client(servicePort)
	late.Want(t, "what Consul said, for a newcomer", call, harness.From("web-1"))

	t.Log("back")
	a.Start()
	wantSource(t, m, "consul:dc1", "")
	serves(t, m, c, "web-3", "2")
	client.Want(t, "what is new", want("2"), harness.From("web-3"))
	load.Stop()
	load.Clean(t, 50)
}
