package kubernetes

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/ashore-mesh/ashore/internal/e2e/harness"
	"github.com/ashore-mesh/ashore/internal/testconsul"
)

// pods is a ServiceEntry that selects Pods.
const pods = `---
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

// selecting is a Service of namespace shop that selects the workloads of an app.
func selecting(name, app string) string {
	return fmt.Sprintf(`---
apiVersion: v1
kind: Service
metadata: {name: %s, namespace: shop}
spec:
  selector: {app: %s}
  ports: [{name: http, port: 80, targetPort: 8080}]
`, name, app)
}

// consulService registers the service db of a machine whose proxy has the identity db.
func consulService(t *testing.T, a *testconsul.Agent, ip string) {
	t.Helper()
	body := fmt.Sprintf(`{"Name": "db", "Address": %q, "Port": 80,
		"Meta": {"protocol": "http", "ashore-service-account": "db"}}`, ip)
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPut,
		"http://"+a.Address+"/v1/agent/service/register", strings.NewReader(body))
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

// member is a workload of the mesh, with a service that only this workload has.
type member struct {
	name    string
	client  *harness.Client
	account string
	host    string // of its service
	backend string // answers the calls
}

// callEach has each caller call the services of all members but its own, with mutual TLS.
func callEach(t *testing.T, when string, callers, members []member) {
	t.Helper()
	for _, caller := range callers {
		for _, callee := range members {
			if caller.name == callee.name {
				continue // the rules of this test redirect no calls to the machine itself
			}
			t.Run(fmt.Sprintf("%s/%s calls %s", when, caller.name, callee.name), func(t *testing.T) {
				caller.client.Want(t, callee.host, harness.Request{Host: callee.host},
					provenBy(caller.account, callee.backend))
			})
		}
	}
}

// Two clusters, Consul and VMs are one mesh: workloads of each kind call those of each other kind. A
// Service that both clusters have in one namespace is one service. A Service selects VMs, and a
// ServiceEntry Pods. A cluster that is lost while ashored restarts keeps its services, and the other
// sources go on.
func TestMesh(t *testing.T) {
	t.Parallel()
	hub := newHub(t)
	one, two := startCluster(t, hub), startCluster(t, hub)
	one.apply(secured("shop", "web") + selecting("one", "web") + selecting("vm", "vm") + pods)
	two.apply(secured("shop", "web") + selecting("two", "web"))
	consul := testconsul.Start(t, nil)
	hub.Forward(consul.Address, nil)
	m := harness.New(t, map[string]string{"groups.yaml": group("vm") + group("db") + group("late")}, harness.At(hub),
		harness.Secure("attestors: {kubernetes: [one, two]}"),
		harness.Sources(source("one", one.Admin), source("two", two.Admin),
			fmt.Sprintf("{kind: consul, address: 'http://%s', namespace: shop}", consul.Address)))
	machine, db := join(t, m, hub, "vm"), join(t, m, hub, "db")
	machine.Namespace.Backend(t, "vm-1", "0.0.0.0:8080")
	db.Namespace.Backend(t, "db-1", "0.0.0.0:80")
	consulService(t, consul, db.Namespace.IP)
	first, second := one.pod("shop/web-"), two.pod("shop/web-")
	one.startAgent(first, "web", one.root("shop"), m.TLS(), "--set", "workload.cluster=one")
	two.startAgent(second, "web", two.root("shop"), m.TLS(), "--set", "workload.cluster=two")

	address := hub.IP + ":80" // HTTP finds the service by its host
	client := func(ns *harness.Namespace) *harness.Client { return ns.Client(t, address).Fresh() }
	members := []member{
		{"vm", client(machine.Namespace), "vm", "vm.shop.svc.cluster.local", "vm-1"},
		{"consul", client(db.Namespace), "db", "db.service.consul", "db-1"},
		{"one", client(first.ns), "web", "one.shop.svc.cluster.local", strings.TrimPrefix(first.name, "shop/")},
		{"two", client(second.ns), "web", "two.shop.svc.cluster.local", strings.TrimPrefix(second.name, "shop/")},
	}
	callEach(t, "all sources", members, members)
	selected := harness.Request{Host: "pods.test"}
	for _, request := range []harness.Request{web(), selected} {
		answerers(t, client(machine.Namespace), request, "web-", 2)
	}

	t.Log("ashored restarts while cluster two is away")
	load := harness.StartCalls(t, client(machine.Namespace), harness.Request{Host: "two.shop.svc.cluster.local"},
		20*time.Millisecond)
	two.StopAPI()
	m.WantProblem("connection refused", "its items stay active")
	m.Ashored.Kill()
	m.Start()
	late := member{name: "late", client: client(join(t, m, hub, "late").Namespace), account: "late"}
	callers := append(members, late)
	callEach(t, "two is away", callers, members)
	answerers(t, late.client, web(), "web-", 2)

	t.Log("cluster one changes")
	one.apply(selecting("new", "web"))
	added := members[2]
	added.host = "new.shop.svc.cluster.local"
	callEach(t, "new service", callers, []member{added})
	one.setReady(first, false)
	if got := answerers(t, late.client, web(), "web-", 1); "shop/"+got[0] != second.name {
		t.Errorf("%q answers, want the Pod of cluster two", got)
	}
	one.setReady(first, true)

	t.Log("cluster two is back")
	two.StartAPI()
	answerers(t, late.client, selected, "web-", 2)
	load.Clean(t, 50)
}
