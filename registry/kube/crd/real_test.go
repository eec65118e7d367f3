package crd

import (
	"context"
	"encoding/pem"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"
	"go.yaml.in/yaml/v3"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/client-go/rest"

	"github.com/ashore-mesh/ashore/config"
	"github.com/ashore-mesh/ashore/internal/feed"
	"github.com/ashore-mesh/ashore/internal/testkube"
	"github.com/ashore-mesh/ashore/internal/testport"
	"github.com/ashore-mesh/ashore/registry/kube"
	"github.com/ashore-mesh/ashore/webhook"
)

// mesh merges what a source sends, as ashored does.
type mesh struct {
	t   *testing.T
	src *Source

	mu     sync.Mutex
	merger *feed.Merger[config.Key, *config.Object] // guarded by mu
}

func newMesh(t *testing.T, c *kube.Cluster) *mesh {
	m := &mesh{t: t, src: New(Config{Cluster: c})}
	m.merger = feed.NewMerger(feed.Config[config.Key, *config.Object]{Settle: 2 * time.Second,
		KeyOf: func(o *config.Object) config.Key { return o.Key }}, []feed.SourceConfig{{Name: m.src.Name()}})
	ctx, cancel := context.WithCancel(t.Context())
	batches, ended := make(chan batch), make(chan struct{})
	go func() {
		defer close(ended)
		if err := m.src.Run(ctx, batches); err != nil {
			t.Error(err)
		}
	}()
	go func() {
		for {
			select {
			case b := <-batches:
				m.mu.Lock()
				m.merger.Apply(b, time.Now())
				m.mu.Unlock()
				t.Log(describe(b))
			case <-ended:
				return
			}
		}
	}()
	t.Cleanup(func() { cancel(); <-ended })
	return m
}

// active returns the active object with a key.
func (m *mesh) active(k config.Key) *config.Object {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.merger.Expire(time.Now())
	for _, s := range m.merger.Items(k) {
		return s.Item
	}
	return nil
}

func (m *mesh) problems() []feed.Problem {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.merger.Problems(func(o *config.Object) string { return o.Origin.Source })
}

func (m *mesh) down() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.merger.Status()[0].Error != ""
}

// wantGeneration waits until a generation of a Gateway is active; empty: until none is.
func (m *mesh) wantGeneration(name, generation string) {
	m.t.Helper()
	eventually(m.t, func() bool {
		o := m.active(config.Key{Kind: config.Gateway, Namespace: "edge", Name: name})
		return o == nil && generation == "" || o != nil && o.Revision == generation
	})
}

func named(name string) map[string]any { return map[string]any{"name": name} }

// post creates an object.
func post(t *testing.T, c *testkube.Cluster, path string, metadata map[string]any, fields ...map[string]any) {
	t.Helper()
	object := map[string]any{"metadata": metadata}
	for _, f := range fields {
		maps.Copy(object, f)
	}
	if err := c.Call(http.MethodPost, path, object, nil); err != nil {
		t.Fatal(err)
	}
}

// account creates a ServiceAccount with rights.
func account(t *testing.T, c *testkube.Cluster, name string, rules ...any) {
	t.Helper()
	post(t, c, "/api/v1/namespaces/istio-system/serviceaccounts", named(name))
	const rbac = "/apis/rbac.authorization.k8s.io/v1/"
	post(t, c, rbac+"clusterroles", named(name), map[string]any{"rules": rules})
	post(t, c, rbac+"clusterrolebindings", named(name), map[string]any{
		"roleRef":  map[string]any{"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": name},
		"subjects": []any{map[string]any{"kind": "ServiceAccount", "namespace": "istio-system", "name": name}}})
}

func rule(groups, resources []string, verbs ...string) map[string]any {
	return map[string]any{"apiGroups": groups, "resources": resources, "verbs": verbs}
}

// installCRDs installs Istio's own. The API server accepts ours, too.
func installCRDs(t *testing.T, c *testkube.Cluster) {
	t.Helper()
	applyCRDs(t, c, crds(), "?dryRun=All")
	dir, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", "istio.io/api").Output()
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(filepath.Join(strings.TrimSpace(string(dir)),
		"kubernetes", "customresourcedefinitions.gen.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	applyCRDs(t, c, string(text), "")
}

func applyCRDs(t *testing.T, c *testkube.Cluster, text, parameters string) {
	t.Helper()
	for doc := range strings.SplitSeq(text, "\n---\n") {
		var crd map[string]any
		if err := yaml.Unmarshal([]byte(doc), &crd); err != nil {
			t.Fatal(err)
		}
		if crd == nil {
			continue
		}
		path := "/apis/apiextensions.k8s.io/v1/customresourcedefinitions" + parameters
		if err := c.Call(http.MethodPost, path, crd, nil); err != nil {
			t.Fatal(err)
		}
	}
}

// webhookServer validates as ashored does, and returns the configuration that makes the API server
// call it, and its root certificate.
func webhookServer(t *testing.T) (configuration map[string]any, roots []byte) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	server := httptest.NewTLSServer(webhook.New(webhook.Config{Listener: l, Log: hclog.NewNullLogger()}))
	t.Cleanup(server.Close)
	return map[string]any{
		"metadata": map[string]any{"name": WebhookName},
		"webhooks": []any{map[string]any{
			"name": "validation.ashore.io", "failurePolicy": "Ignore", "sideEffects": "None",
			"admissionReviewVersions": []any{"v1"},
			"clientConfig":            map[string]any{"url": server.URL + "/validate"},
			"rules": []any{map[string]any{"apiGroups": []any{"networking.istio.io"}, "apiVersions": []any{"*"},
				"operations": []any{"CREATE", "UPDATE"}, "resources": []any{"*"}}},
		}},
	}, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
}

// gateways creates and changes Gateways in a cluster.
type gateways struct {
	t *testing.T
	c *kube.Cluster
}

func (g gateways) create(name string, port int) error {
	u := gateway(name, 1, port)
	unstructured.RemoveNestedField(u.Object, "metadata", "resourceVersion")
	_, err := g.c.Dynamic.Resource(gvrOf(u)).Namespace("edge").Create(g.t.Context(), u, metav1.CreateOptions{})
	return err
}

func (g gateways) get(name string) *unstructured.Unstructured {
	g.t.Helper()
	objects := g.c.Dynamic.Resource(gvrOf(gateway(name, 1, 80))).Namespace("edge")
	u, err := objects.Get(g.t.Context(), name, metav1.GetOptions{})
	if err != nil {
		g.t.Fatal(err)
	}
	return u
}

// change changes a Gateway, or its status.
func (g gateways) change(name string, change func(*unstructured.Unstructured), part ...string) {
	g.t.Helper()
	eventually(g.t, func() bool { // a writer of the status may be faster
		u := g.get(name)
		change(u)
		_, err := g.c.Dynamic.Resource(gvrOf(u)).Namespace("edge").Update(g.t.Context(), u, metav1.UpdateOptions{}, part...)
		return err == nil
	})
}

func setPort(port int) func(*unstructured.Unstructured) {
	return func(u *unstructured.Unstructured) { u.Object["spec"] = gateway("", 1, port).Object["spec"] }
}

// status returns our condition, and the types of all.
func (g gateways) status(name string) string {
	list, _, _ := unstructured.NestedSlice(g.get(name).Object, "status", "conditions")
	var types []string
	for _, entry := range list {
		types = append(types, fmt.Sprint(entry.(map[string]any)["type"]))
	}
	c := conditionOf(&object{conditions: list})
	return fmt.Sprint(strings.Join(types, ","), " ", c.status, " ", c.reason, " ", c.generation, " ", c.message)
}

func (g gateways) wantStatus(name, begin string) {
	g.t.Helper()
	got := ""
	for end := time.Now().Add(20 * time.Second); time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
		if got = g.status(name); strings.HasPrefix(got, begin) {
			return
		}
	}
	g.t.Fatalf("status %q, want %q", got, begin)
}

// link is a connection to an API server that can be cut.
type link struct {
	t       *testing.T
	address string // of us
	server  string // of the API server

	mu       sync.Mutex
	listener net.Listener // guarded by mu
	conns    []net.Conn   // guarded by mu
}

func newLink(t *testing.T, server string) *link {
	l := &link{t: t, address: testport.Address(t), server: server}
	l.restore()
	t.Cleanup(l.cut)
	return l
}

// kubeconfig returns a kubeconfig that uses the link.
func (l *link) kubeconfig(direct string) string {
	l.t.Helper()
	text, err := os.ReadFile(direct)
	if err != nil {
		l.t.Fatal(err)
	}
	file := filepath.Join(l.t.TempDir(), "kubeconfig")
	text = []byte(strings.ReplaceAll(string(text), l.server, l.address))
	if err := os.WriteFile(file, text, 0o600); err != nil {
		l.t.Fatal(err)
	}
	return file
}

func (l *link) restore() {
	l.t.Helper()
	listener, err := net.Listen("tcp", l.address)
	if err != nil {
		l.t.Fatal(err)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.listener = listener
	go func() {
		for {
			client, err := listener.Accept()
			if err != nil {
				return
			}
			server, err := net.Dial("tcp", l.server)
			if err != nil {
				_ = client.Close()
				continue
			}
			l.mu.Lock()
			l.conns = append(l.conns, client, server)
			l.mu.Unlock()
			go func() { _, _ = io.Copy(client, server); _ = client.Close() }()
			go func() { _, _ = io.Copy(server, client); _ = server.Close() }()
		}
	}()
}

func (l *link) cut() {
	l.mu.Lock()
	defer l.mu.Unlock()
	_ = l.listener.Close()
	for _, c := range l.conns {
		_ = c.Close()
	}
}

// connect connects until the test ends.
func connect(t *testing.T, o kube.Options) *kube.Cluster {
	t.Helper()
	c, err := kube.Connect("kubernetes", o, hclog.NewNullLogger())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		utilnet.CloseIdleConnectionsFor(c.Client.Discovery().RESTClient().(*rest.RESTClient).Client.Transport)
	})
	return c
}

func deleteGateway(t *testing.T, c *kube.Cluster, name string) {
	t.Helper()
	at := gvrOf(gateway(name, 1, 80))
	if err := c.Dynamic.Resource(at).Namespace("edge").Delete(t.Context(), name, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
}

// A real API server with Istio's CRDs: objects, their status, the webhook, outages, and lost history.
func TestRealCluster(t *testing.T) {
	t.Parallel()
	real := testkube.Start(t, &testkube.Machine{})
	installCRDs(t, real)
	for _, name := range []string{"edge", "istio-system"} {
		post(t, real, "/api/v1/namespaces", named(name))
	}
	all := []string{"*"}
	account(t, real, "everything", rule(all, all, all...))
	groups := []string{"networking.istio.io", "security.istio.io", "telemetry.istio.io", "extensions.istio.io"}
	account(t, real, "ashored", rule(groups, all, "list", "watch"), rule(groups, []string{"*/status"}, "patch"),
		rule(groups, []string{"gateways"}, "create"),
		map[string]any{"apiGroups": []string{"admissionregistration.k8s.io"},
			"resources":     []string{"validatingwebhookconfigurations"},
			"resourceNames": []string{WebhookName}, "verbs": []string{"list", "watch", "patch"}})
	o := kube.DefaultOptions()
	o.Kubeconfig = real.Kubeconfig("istio-system", "everything")
	c := connect(t, o)
	g := gateways{t, c}
	eventually(t, func() bool { return g.create("a", 80) == nil }) // once the CRD is served
	if err := g.create("c", 80); err != nil {
		t.Fatal(err)
	}
	link := newLink(t, strings.TrimPrefix(real.URL, "https://"))
	o.Kubeconfig = link.kubeconfig(real.Kubeconfig("istio-system", "ashored"))
	linked := connect(t, o)
	m := newMesh(t, linked)
	m.wantGeneration("a", "1")

	// The status: ours, of an invalid object, and that of others.
	w := NewStatusWriter(StatusConfig{Source: m.src, Active: m.active, Problems: m.problems})
	ctx, cancel := context.WithCancel(t.Context())
	var leader sync.WaitGroup
	defer func() { cancel(); leader.Wait() }()
	leader.Go(func() { w.Run(ctx) })
	g.wantStatus("a", "Reconciled True Active 1 ")
	g.change("a", setPort(0))
	g.wantStatus("a", "Reconciled False Invalid 2 spec.servers[0].port.number: ")
	m.wantGeneration("a", "1")
	g.change("a", func(u *unstructured.Unstructured) {
		other := []any{map[string]any{"type": "Other", "status": "True"}}
		if err := unstructured.SetNestedSlice(u.Object, other, "status", "conditions"); err != nil {
			t.Error(err)
		}
	}, "status")
	g.change("a", setPort(81))
	g.wantStatus("a", "Other,Reconciled True Active 3 ")
	m.wantGeneration("a", "3")

	// The webhook: the API server refuses what is invalid, once it reaches us.
	configuration, roots := webhookServer(t)
	const webhooks = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations"
	if err := real.Call(http.MethodPost, webhooks, configuration, nil); err != nil {
		t.Fatal(err)
	}
	h := NewWebhook(WebhookConfig{Cluster: linked, Roots: func() []byte { return roots }})
	leader.Go(func() { h.Run(ctx) })
	policy := func() string {
		var got struct {
			Webhooks []struct{ FailurePolicy string }
		}
		if err := real.Call(http.MethodGet, webhooks+"/"+WebhookName, nil, &got); err != nil {
			t.Fatal(err)
		}
		return got.Webhooks[0].FailurePolicy
	}
	eventually(t, func() bool { return policy() == "Fail" })
	if err := g.create("invalid", 0); err == nil || !strings.Contains(err.Error(), "spec.servers[0].port.number") {
		t.Errorf("an invalid Gateway is answered with %v", err)
	}
	for _, p := range append(h.Problems(), w.Problems()...) {
		t.Errorf("problem %v", p)
	}
	g.wantStatus("a", "Other,Reconciled True Active 3 ") // the webhook lets the status pass

	// The cluster is away, and then a watch cannot continue where it broke: the API server has lost the
	// history of the changes that were made meanwhile.
	link.cut()
	eventually(t, m.down)
	g.change("a", setPort(82))
	if err := g.create("b", 80); err != nil {
		t.Fatal(err)
	}
	deleteGateway(t, c, "c")
	real.StopAPI()
	real.StartAPI()
	m.wantGeneration("a", "3")
	link.restore()
	m.wantGeneration("a", "4")
	m.wantGeneration("b", "1")
	m.wantGeneration("c", "")
	eventually(t, func() bool { return !m.down() })

	// One kind cannot be read, and the others work.
	breakConversion(t, real)
	eventually(t, func() bool {
		return slices.ContainsFunc(m.problems(), func(p feed.Problem) bool {
			return p.Object == string(config.Telemetry) && strings.Contains(p.Text, "conversion webhook for telemetry.istio.io")
		})
	})
	g.change("a", setPort(83))
	m.wantGeneration("a", "5")
	if m.down() {
		t.Error("the source is down because of one kind")
	}
}

// breakConversion creates a Telemetry in another version than the one that is read, and has the API
// server convert it with a webhook that does not answer.
func breakConversion(t *testing.T, c *testkube.Cluster) {
	t.Helper()
	const path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/telemetries.telemetry.istio.io"
	var crd map[string]any
	err := c.Call(http.MethodGet, path, nil, &crd)
	if err == nil {
		crd["spec"].(map[string]any)["conversion"] = map[string]any{"strategy": "Webhook", "webhook": map[string]any{
			"conversionReviewVersions": []string{"v1"}, "clientConfig": map[string]any{"url": "https://127.0.0.1:1/"}}}
		err = c.Call(http.MethodPut, path, crd, nil)
	}
	if err != nil {
		t.Fatal(err)
	}
	post(t, c, "/apis/telemetry.istio.io/v1alpha1/namespaces/edge/telemetries", named("a"),
		map[string]any{"apiVersion": "telemetry.istio.io/v1alpha1", "kind": "Telemetry", "spec": map[string]any{}})
}
