package kubernetes

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"testing"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/discovery/cached/memory"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/restmapper"

	"github.com/ashore-mesh/ashore/internal/e2e/harness"
	"github.com/ashore-mesh/ashore/internal/testkube"
)

// cluster is a cluster of Kubernetes with Pods that run, and what kubectl does with it.
type cluster struct {
	*testkube.Cluster
	*kubelet
	client  kubernetes.Interface
	dynamic dynamic.Interface
	kinds   *restmapper.DeferredDiscoveryRESTMapper
}

// running bounds the tests that have clusters at the same time: other suites share the machine.
var running = make(chan struct{}, 2)

// newHub makes the network of a test, once fewer than two others have one. A test without root is
// skipped.
func newHub(t *testing.T) *harness.Namespace {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root: makes network namespaces")
	}
	running <- struct{}{}
	t.Cleanup(func() { <-running })
	return harness.Hub(t)
}

// startCluster starts a cluster in a hub. Istio's CRDs are installed there.
func startCluster(t *testing.T, hub *harness.Namespace) *cluster {
	t.Helper()
	c := &cluster{Cluster: testkube.Start(t, hub)}
	config := &rest.Config{Host: c.URL, QPS: -1}
	var err error
	if c.client, err = kubernetes.NewForConfigAndClient(config, c.Client); err != nil {
		t.Fatal(err)
	}
	if c.dynamic, err = dynamic.NewForConfigAndClient(config, c.Client); err != nil {
		t.Fatal(err)
	}
	c.kinds = restmapper.NewDeferredDiscoveryRESTMapper(memory.NewMemCacheClient(c.client.Discovery()))
	c.kubelet = startKubelet(t, c.client, hub)
	c.apply(istioCRDs(t) + "---\n{apiVersion: v1, kind: Namespace, metadata: {name: istio-system}}\n")
	return c
}

// istioCRDs returns the YAML of Istio's own CRDs.
func istioCRDs(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(moduleFolder(t, ".", "istio.io/api"),
		"kubernetes/customresourcedefinitions.gen.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// apply creates or changes objects as "kubectl apply --server-side" does, and fails the test if the
// API server refuses one.
func (c *cluster) apply(text string) {
	c.t.Helper()
	if err := c.tryApply(text); err != nil {
		c.t.Fatal(err)
	}
}

// tryApply is apply that returns the error.
func (c *cluster) tryApply(text string) error {
	return c.each(text, func(objects dynamic.ResourceInterface, o *unstructured.Unstructured) error {
		_, err := objects.Apply(context.Background(), o.GetName(), o,
			metav1.ApplyOptions{FieldManager: "kubectl", Force: true})
		return err
	})
}

// remove deletes objects as "kubectl delete" does.
func (c *cluster) remove(text string) {
	c.t.Helper()
	err := c.each(text, func(objects dynamic.ResourceInterface, o *unstructured.Unstructured) error {
		return objects.Delete(context.Background(), o.GetName(), metav1.DeleteOptions{})
	})
	if err != nil {
		c.t.Fatal(err)
	}
}

// each calls f with each object of a YAML text and the API of its kind.
func (c *cluster) each(text string, f func(dynamic.ResourceInterface, *unstructured.Unstructured) error) error {
	documents := yaml.NewYAMLOrJSONDecoder(bytes.NewReader([]byte(text)), 4096)
	for {
		o := &unstructured.Unstructured{}
		switch err := documents.Decode(&o.Object); {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return err
		case len(o.Object) == 0:
			continue
		}
		api, err := c.api(o)
		if err == nil {
			err = f(api, o)
		}
		if err != nil {
			return fmt.Errorf("%s %s/%s: %w", o.GetKind(), o.GetNamespace(), o.GetName(), err)
		}
	}
}

// api returns the API of the kind and namespace of an object.
func (c *cluster) api(o *unstructured.Unstructured) (dynamic.ResourceInterface, error) {
	kind := o.GroupVersionKind()
	mapping, err := c.kinds.RESTMapping(kind.GroupKind(), kind.Version)
	if meta.IsNoMatchError(err) {
		c.kinds.Reset() // its CRD may be new
		mapping, err = c.kinds.RESTMapping(kind.GroupKind(), kind.Version)
	}
	if err != nil {
		return nil, err
	}
	if mapping.Scope.Name() == meta.RESTScopeNameRoot {
		return c.dynamic.Resource(mapping.Resource), nil
	}
	return c.dynamic.Resource(mapping.Resource).Namespace(o.GetNamespace()), nil
}

// write writes a file of the test.
func (c *cluster) write(path, text string) {
	c.t.Helper()
	if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(text), 0o644)); err != nil {
		c.t.Fatal(err)
	}
}
