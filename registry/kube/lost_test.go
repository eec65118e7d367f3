package kube_test

import (
	"context"
	"net/http"
	"slices"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/ashore-mesh/ashore/internal/testkube"
	"github.com/ashore-mesh/ashore/internal/testlog"
	"github.com/ashore-mesh/ashore/registry/kube"
)

// A cluster that lost its data, and so has lower versions than before, is listed again.
func TestLostData(t *testing.T) {
	t.Parallel()
	k := testkube.Start(t, &testkube.Machine{})
	create := func(path string, metadata map[string]any) {
		t.Helper()
		if err := k.Call(http.MethodPost, path, map[string]any{"metadata": metadata}, nil); err != nil {
			t.Fatal(err)
		}
	}
	create("/api/v1/namespaces", map[string]any{"name": "a"})
	o := kube.DefaultOptions()
	o.Kubeconfig = k.Admin
	c, err := kube.Connect("kubernetes", o, testlog.New(t))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	defer running.Wait()
	defer cancel()
	lists := make(chan []string, 100)
	running.Go(func() {
		kube.Watch(ctx, c, kube.Resource[*corev1.NamespaceList]{Name: "namespaces", Client: c.Client.CoreV1().Namespaces()},
			kube.Handler[*corev1.Namespace, string]{
				Convert: func(n *corev1.Namespace) string { return n.Name },
				Replace: func(names []string) { lists <- names },
				Set:     func(string) {}, Delete: func(string) {}, Report: func(err error) { t.Log(err) },
			})
	})
	want := func(a bool) {
		t.Helper()
		for timeout := time.After(time.Minute); ; {
			select {
			case got := <-lists:
				if slices.Contains(got, "a") == a {
					return
				}
			case <-timeout:
				t.Fatalf("no list in which namespace a is %t", a)
			}
		}
	}
	want(true)
	for range 500 { // the cluster must not reach these versions again
		create("/api/v1/namespaces/a/configmaps", map[string]any{"generateName": "a"})
	}
	create("/api/v1/namespaces", map[string]any{"name": "b"})
	time.Sleep(time.Second) // a watch of less time is always listed again
	k.Forget()
	want(false)
}
