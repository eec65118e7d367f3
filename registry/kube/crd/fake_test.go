package crd

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	dynamicfake "k8s.io/client-go/dynamic/fake"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/rest"
	kubetesting "k8s.io/client-go/testing"

	"github.com/ashore-mesh/ashore/config"
	"github.com/ashore-mesh/ashore/registry/kube"
)

// fakeCluster is a cluster in memory. Its API server is that of client-go's fakes, except for the
// lookup of kinds.
type fakeCluster struct {
	t       *testing.T
	dynamic *dynamicfake.FakeDynamicClient
	client  *fake.Clientset
	kube    *kube.Cluster

	mu       sync.Mutex
	served   map[string][]string // guarded by mu; names of resources by group and version
	fails    map[string]error    // guarded by mu; by the verb and resource of a request, "list gateways"
	refusals int                 // guarded by mu; how many lookups of kinds are forbidden
}

// clientset is a fake whose kinds are looked up over HTTP.
type clientset struct {
	*fake.Clientset
	discovery discovery.DiscoveryInterface
}

func (c clientset) Discovery() discovery.DiscoveryInterface { return c.discovery }

// newFakeCluster returns a cluster with these kinds installed.
func newFakeCluster(t *testing.T, kinds ...config.Kind) *fakeCluster {
	t.Helper()
	c := &fakeCluster{t: t, client: fake.NewClientset(), served: map[string][]string{}, fails: map[string]error{}}
	lists := map[schema.GroupVersionResource]string{}
	for _, i := range config.Kinds() {
		for _, version := range i.Versions {
			lists[schema.GroupVersionResource{Group: i.Group, Version: version, Resource: i.Plural}] = string(i.Kind) + "List"
		}
	}
	c.dynamic = dynamicfake.NewSimpleDynamicClientWithCustomListKinds(runtime.NewScheme(), lists)
	fail := func(a kubetesting.Action) (bool, error) {
		c.mu.Lock()
		defer c.mu.Unlock()
		err := c.fails[a.GetVerb()+" "+a.GetResource().Resource]
		if err == nil {
			err = c.fails["all"]
		}
		return err != nil, err
	}
	c.dynamic.PrependReactor("*", "*", func(a kubetesting.Action) (bool, runtime.Object, error) {
		failed, err := fail(a)
		return failed, nil, err
	})
	c.client.PrependReactor("*", "*", func(a kubetesting.Action) (bool, runtime.Object, error) {
		failed, err := fail(a)
		return failed, nil, err
	})
	server := httptest.NewServer(http.HandlerFunc(c.serveKinds))
	t.Cleanup(server.Close)
	d, err := discovery.NewDiscoveryClientForConfig(&rest.Config{Host: server.URL})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(d.RESTClient().(*rest.RESTClient).Client.CloseIdleConnections)
	c.kube = &kube.Cluster{Name: "kubernetes:east", Options: kube.DefaultOptions(), Log: hclog.NewNullLogger(),
		Client: clientset{c.client, d}, Dynamic: c.dynamic}
	for _, k := range kinds {
		c.install(k, 0)
	}
	return c
}

// install serves a kind in one of its versions.
func (c *fakeCluster) install(k config.Kind, version int) {
	i, _ := config.Info(k)
	c.serve(k, i.Versions[version])
}

// serve serves a kind in a version, which may be unknown.
func (c *fakeCluster) serve(k config.Kind, version string) {
	i, _ := config.Info(k)
	c.mu.Lock()
	defer c.mu.Unlock()
	gv := i.Group + "/" + version
	c.served[gv] = append(c.served[gv], i.Plural)
}

// uninstall serves a kind in no version. Its objects stay, and watches go on.
func (c *fakeCluster) uninstall(k config.Kind) {
	i, _ := config.Info(k)
	c.mu.Lock()
	defer c.mu.Unlock()
	for gv, names := range c.served {
		c.served[gv] = slices.DeleteFunc(names, func(name string) bool { return name == i.Plural })
	}
}

// fail makes requests fail: those of a verb and resource, "list gateways", or "all". Nil ends that.
func (c *fakeCluster) fail(request string, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.fails, request)
	if err != nil {
		c.fails[request] = err
	}
}

func forbidden(resource string) error {
	return apierrors.NewForbidden(schema.GroupResource{Resource: resource}, "", errors.New("no role"))
}

// serveKinds answers which versions an API group has, and which resources a version.
func (c *fakeCluster) serveKinds(w http.ResponseWriter, r *http.Request) {
	c.mu.Lock()
	defer c.mu.Unlock()
	path := strings.TrimPrefix(r.URL.Path, "/apis/")
	meta := func(kind string) metav1.TypeMeta { return metav1.TypeMeta{Kind: kind, APIVersion: "v1"} }
	group := metav1.APIGroup{TypeMeta: meta("APIGroup"), Name: path}
	list := metav1.APIResourceList{TypeMeta: meta("APIResourceList"), GroupVersion: path}
	for gv, names := range c.served {
		if version, ok := strings.CutPrefix(gv, path+"/"); ok && len(names) > 0 {
			group.Versions = append(group.Versions, metav1.GroupVersionForDiscovery{GroupVersion: gv, Version: version})
		}
	}
	for _, name := range c.served[path] {
		list.APIResources = append(list.APIResources, metav1.APIResource{Name: name, Namespaced: true})
	}
	status := metav1.Status{TypeMeta: meta("Status"), Status: metav1.StatusFailure}
	var body any = list
	w.Header().Set("Content-Type", "application/json")
	switch {
	case c.refusals > 0:
		c.refusals--
		status.Reason, body = metav1.StatusReasonForbidden, &status
		w.WriteHeader(http.StatusForbidden)
	case len(group.Versions) > 0:
		body = group
	case len(list.APIResources) == 0:
		status.Reason, body = metav1.StatusReasonNotFound, &status
		w.WriteHeader(http.StatusNotFound)
	}
	if err := json.NewEncoder(w).Encode(body); err != nil {
		c.t.Error(err)
	}
}

// gateway is a Gateway with one port. Port 0 is invalid.
func gateway(name string, generation int64, port int) *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "networking.istio.io/v1", "kind": "Gateway",
		"metadata": map[string]any{"name": name, "namespace": "edge", "generation": generation, "uid": "u-" + name,
			"creationTimestamp": "2026-01-02T03:04:05Z", "resourceVersion": fmt.Sprint(generation)},
		"spec": map[string]any{"selector": map[string]any{"istio": "ingress"}, "servers": []any{map[string]any{
			"hosts": []any{"*"}, "port": map[string]any{"number": int64(port), "name": "http", "protocol": "HTTP"}}}},
	}}
}

func gvrOf(u *unstructured.Unstructured) schema.GroupVersionResource {
	i, _ := config.Info(config.Kind(u.GetKind()))
	return u.GroupVersionKind().GroupVersion().WithResource(i.Plural)
}

func (c *fakeCluster) create(u *unstructured.Unstructured) {
	c.t.Helper()
	_, err := c.dynamic.Resource(gvrOf(u)).Namespace(u.GetNamespace()).Create(c.t.Context(), u, metav1.CreateOptions{})
	if err != nil {
		c.t.Fatal(err)
	}
}

func (c *fakeCluster) update(u *unstructured.Unstructured) {
	c.t.Helper()
	_, err := c.dynamic.Resource(gvrOf(u)).Namespace(u.GetNamespace()).Update(c.t.Context(), u, metav1.UpdateOptions{})
	if err != nil {
		c.t.Fatal(err)
	}
}

func (c *fakeCluster) delete(u *unstructured.Unstructured) {
	c.t.Helper()
	objects := c.dynamic.Resource(gvrOf(u)).Namespace(u.GetNamespace())
	err := objects.Delete(c.t.Context(), u.GetName(), metav1.DeleteOptions{})
	if err != nil {
		c.t.Fatal(err)
	}
}

// run runs a source, and returns its batches.
func (c *fakeCluster) run(s *Source) <-chan batch {
	ctx, cancel := context.WithCancel(c.t.Context())
	out, ended := make(chan batch), make(chan error)
	go func() { ended <- s.Run(ctx, out) }()
	c.t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			c.t.Error(err)
		}
	})
	return out
}

// next returns the next batch as text: its flags, then each group with its objects.
func next(t *testing.T, from <-chan batch) string {
	t.Helper()
	select {
	case b := <-from:
		return describe(b)
	case <-time.After(20 * time.Second):
		t.Fatal("no batch arrived")
		return ""
	}
}

func describe(b batch) string {
	var words []string
	flags := map[string]bool{"full": b.Full, "explicit": b.Explicit}
	for _, name := range slices.Sorted(maps.Keys(flags)) {
		if flags[name] {
			words = append(words, name)
		}
	}
	if b.Down != nil {
		return "down: " + b.Down.Error()
	}
	for _, u := range b.Updates {
		text := u.Group
		for _, o := range u.Items {
			text += "=" + o.Revision
		}
		if len(u.Invalid) > 0 {
			text += "=invalid"
		}
		if u.Unreadable {
			text += "=unreadable"
		}
		for _, p := range u.Problems {
			text += " (" + p.Text + ")"
		}
		words = append(words, text)
	}
	return strings.Join(words, ", ")
}

// want fails unless the next batch has a text. One that ends in "…" is only the beginning.
func want(t *testing.T, from <-chan batch, text string) {
	t.Helper()
	got := next(t, from)
	if begin, open := strings.CutSuffix(text, "…"); got != text && !(open && strings.HasPrefix(got, begin)) {
		t.Errorf("batch\n%s\nwant\n%s", got, text)
	}
}

// wantChanges fails unless the next explicit batches, of which there may be one, have these changes in
// this order.
func wantChanges(t *testing.T, from <-chan batch, text string) {
	t.Helper()
	got := strings.TrimPrefix(next(t, from), "explicit, ")
	for len(got) < len(text) {
		got += ", " + strings.TrimPrefix(next(t, from), "explicit, ")
	}
	if got != text {
		t.Errorf("changes\n%s\nwant\n%s", got, text)
	}
}
