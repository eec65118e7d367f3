package replicas

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/ashore-mesh/ashore/internal/admin"
	"github.com/ashore-mesh/ashore/internal/e2e/harness"
	"github.com/ashore-mesh/ashore/internal/testconsul"
)

// Where services listen for their callers, and where the applications behind their proxies do.
const servicePort, appPort = 8080, 18080

// meshFiles are two groups of workloads, of which web serves web.test.
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
kind: ServiceEntry
metadata: {name: web, namespace: shop}
spec:
  hosts: [web.test]
  location: MESH_INTERNAL
  resolution: STATIC
  ports: [{number: 8080, name: http, protocol: HTTP}]
  workloadSelector: {labels: {app: web}}
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
`

// call is a request to web.
func call() harness.Request { return harness.Request{Host: "web.test"} }

// world are replicas that share a Consul.
type world struct {
	t      *testing.T
	number int // 1 to 255
	consul *testconsul.Agent
	meshes []*harness.Mesh
	apps   map[string]*harness.Backend // by name
}

// worlds numbers those of this process.
var worlds atomic.Int32

// door is the address of Consul's HTTP interface for a replica: each has its own, so that its link
// can be cut by itself.
func (w *world) door(i int) string { return fmt.Sprintf("127.3.%d.%d", w.number, i+1) }

// newWorld starts Consul and n replicas, each later one with a token that the first one made; more
// is further YAML of their settings.
func newWorld(t *testing.T, n int, more string) *world {
	t.Helper()
	w := &world{t: t, number: int(worlds.Add(1)), apps: map[string]*harness.Backend{}}
	doors := []string{"127.0.0.1"}
	for i := range n {
		doors = append(doors, w.door(i))
	}
	w.consul = testconsul.Start(t, map[string]any{"addresses": map[string]any{"http": strings.Join(doors, " ")}})
	for i := range n {
		options := []harness.Option{harness.Secure(w.settings(i) + more)}
		if i > 0 {
			made, err := admin.Send(context.Background(), w.meshes[0].Admin, admin.CallCreateReplicaToken,
				admin.ReplicaTokenRequest{TTL: "5m"})
			if err != nil {
				t.Fatal(err)
			}
			options = append(options, harness.StateOn(func(dir string) {
				folder := filepath.Join(dir, "ca")
				err := os.Mkdir(folder, 0o700)
				if err == nil {
					err = os.WriteFile(filepath.Join(folder, "replica-token"), []byte(made.Token+"\n"), 0o600)
				}
				if err != nil {
					t.Fatal(err)
				}
			}))
		}
		w.meshes = append(w.meshes, harness.New(t, map[string]string{"mesh.yaml": meshFiles}, options...))
	}
	return w
}

// settings are those that make a replica share Consul.
func (w *world) settings(i int) string {
	_, port, _ := strings.Cut(w.consul.Address, ":")
	return fmt.Sprintf("store: {kind: consul, address: \"http://%s:%s\", prefix: ashore/test}\n", w.door(i), port)
}

// cut has nothing pass between a replica and Consul; mend ends that.
func (w *world) cut(i int) {
	w.t.Helper()
	w.nft(fmt.Sprintf("table ip %s {\n chain in { type filter hook input priority 0; ip daddr %s drop; ip saddr %s drop; }\n}\n", w.table(i), w.door(i), w.door(i)))
}

func (w *world) mend(i int) {
	w.t.Helper()
	w.nft(fmt.Sprintf("delete table ip %s\n", w.table(i)))
}

// table is the name of that of nftables which cuts a replica off.
func (w *world) table(i int) string { return fmt.Sprintf("cut-%d-%d", w.number, i) }

func (w *world) nft(rules string) {
	w.t.Helper()
	cmd := exec.Command("nft", "-f", "-")
	cmd.Stdin = strings.NewReader(rules)
	if out, err := cmd.CombinedOutput(); err != nil {
		w.t.Fatalf("nft (needs root and nftables, \"make net-tools\"): %v\n%s", err, out)
	}
}

// join has a workload join by the line that replica i prints, which names all of them.
func (w *world) join(i int, of harness.Workload) *harness.Proxy {
	w.t.Helper()
	m := w.meshes[i]
	var line []string
	harness.Eventually(w.t, "a line to join that names all replicas", func() error {
		line = harness.Line(w.t, m.Token(of.Group, "1h"))
		named := strings.Split(line[w.planes(line)], ",")
		for _, other := range w.meshes {
			if !slices.Contains(named, other.TLS()) {
				return fmt.Errorf("it is %q", line)
			}
		}
		return nil
	})
	return m.JoinBy(line, of)
}

// planes is the word of a line that names the replicas.
func (w *world) planes(line []string) int {
	w.t.Helper()
	at := slices.Index(line, "--control-plane")
	if at < 0 {
		w.t.Fatalf("the line to join is %q", line)
	}
	return at + 1
}

// serve has a member of web join by replica i, with its application, which answers with its name.
func (w *world) serve(i int, name string) *harness.Proxy {
	w.t.Helper()
	return w.join(i, w.application(i, name))
}

// application is a member of web with its application, which answers with its name.
func (w *world) application(i int, name string) harness.Workload {
	w.t.Helper()
	b := harness.NewBackend(w.t, name, fmt.Sprintf("%s:%d", w.meshes[i].IP(), appPort))
	w.apps[name] = b
	ip, _, _ := strings.Cut(b.Address, ":")
	return harness.Workload{Name: name, Group: "shop/web", IP: ip}
}

// on waits until an agent follows replica i.
func (w *world) on(p *harness.Proxy, i int) {
	w.t.Helper()
	p.WantLine("control plane", "ok", w.meshes[i].TLS())
}

// where is the replica that an agent follows.
func (w *world) where(p *harness.Proxy) int {
	w.t.Helper()
	at := -1
	harness.Eventually(w.t, "an agent that is connected", func() error {
		r, err := p.Report()
		if err != nil {
			return err
		}
		line := r.Line("control plane")
		at = slices.IndexFunc(w.meshes, func(m *harness.Mesh) bool {
			return strings.HasPrefix(line, "ok") &&
				strings.Contains(line, m.TLS())
		})
		if at < 0 {
			return fmt.Errorf("it says %q", r.Line("control plane"))
		}
		return nil
	})
	return at
}

// registered are the workloads of a replica, with their health and the replica that they are
// connected to.
func registered(m *harness.Mesh) (string, error) {
	list, err := admin.Send(context.Background(), m.Admin, admin.CallObjects, admin.ObjectQuery{Kind: "WorkloadEntry", Namespace: "shop"})
	if err != nil {
		return "", err
	}
	var out []string
	for _, o := range list {
		text, err := json.Marshal(o)
		if err != nil {
			return "", err
		}
		out = append(out, string(text))
	}
	return strings.Join(out, "\n"), nil
}

// agree waits until all replicas, except those left out, have the same n workloads.
func (w *world) agree(n int, but ...int) {
	w.t.Helper()
	harness.Eventually(w.t, fmt.Sprintf("the replicas tell the same of %d workloads", n), func() error {
		told := map[string]bool{}
		for i, m := range w.meshes {
			if slices.Contains(but, i) {
				continue
			}
			text, err := registered(m)
			if err != nil {
				return err
			}
			if have := strings.Count(text, "\n") + 1; have != n {
				return fmt.Errorf("replica %d tells of %d:\n%s", i, have, text)
			}
			told[text] = true
		}
		if len(told) != 1 {
			return fmt.Errorf("they tell %d things", len(told))
		}
		return nil
	})
}
