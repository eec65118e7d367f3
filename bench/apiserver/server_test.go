package apiserver

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"
	"go.uber.org/goleak"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/ashore-mesh/ashore/bench/fleet"
	"github.com/ashore-mesh/ashore/registry/kube"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func connect(t *testing.T, streams bool) (*Server, *kube.Cluster) {
	t.Helper()
	s := Start(fleet.Shape{Services: 3, Endpoints: 2, Namespaces: 2}, streams)
	t.Cleanup(s.Close)
	o := kube.DefaultOptions()
	o.Kubeconfig = filepath.Join(t.TempDir(), "kubeconfig")
	if err := os.WriteFile(o.Kubeconfig, s.Kubeconfig(), 0o600); err != nil {
		t.Fatal(err)
	}
	c, err := kube.Connect("kubernetes", o, hclog.NewNullLogger())
	if err != nil {
		t.Fatal(err)
	}
	return s, c
}

// follow watches a kind until the test ends. The channel receives what the objects and events are in
// the words of describe.
func follow[T kube.Object, L runtime.Object](t *testing.T, c *kube.Cluster, r kube.Resource[L],
	describe func(T) string) <-chan string {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	ended, out := make(chan struct{}), make(chan string, 100)
	t.Cleanup(func() { cancel(); <-ended })
	event := func(what string) func(string) { return func(o string) { out <- what + " " + o } }
	go func() {
		defer close(ended)
		kube.Watch(ctx, c, r, kube.Handler[T, string]{
			Convert: describe,
			Replace: func(all []string, _ bool) {
				slices.Sort(all)
				out <- fmt.Sprint("all ", all)
			},
			Set: event("set"), Delete: event("deleted"),
			Report: func(err error) {
				if err != nil {
					t.Error(err)
				}
			},
		})
	}()
	return out
}

func receive(t *testing.T, from <-chan string, want string) {
	t.Helper()
	select {
	case got := <-from:
		if got != want {
			t.Errorf("got  %s\nwant %s", got, want)
		}
	case <-time.After(20 * time.Second):
		t.Fatalf("nothing arrived, want %s", want)
	}
}

// The client of ashored reads all kinds, streamed and listed, and follows their changes.
func TestFollow(t *testing.T) {
	t.Parallel()
	for _, streams := range []bool{true, false} {
		t.Run(fmt.Sprint("streams ", streams), func(t *testing.T) {
			t.Parallel()
			s, c := connect(t, streams)
			core := c.Client.CoreV1()
			pods := follow(t, c, kube.Resource[*corev1.PodList]{Name: "pods", Client: core.Pods("")},
				func(p *corev1.Pod) string {
					return fmt.Sprint(p.Name, " ", p.Status.PodIP, " ", p.Status.Conditions[0].Status)
				})
			slices := follow(t, c, kube.Resource[*discoveryv1.EndpointSliceList]{Name: "endpointslices",
				Client: c.Client.DiscoveryV1().EndpointSlices("")}, func(e *discoveryv1.EndpointSlice) string {
				out := e.Namespace + "/" + e.Labels[discoveryv1.LabelServiceName]
				for _, e := range e.Endpoints {
					out += fmt.Sprint(" ", e.Addresses[0], " ", *e.Conditions.Ready)
				}
				return out
			})
			services := follow(t, c, kube.Resource[*corev1.ServiceList]{Name: "services", Client: core.Services("")},
				func(s *corev1.Service) string {
					return fmt.Sprint(s.Name, " ", s.Spec.ClusterIP, " ", s.Spec.Ports[0].Name)
				})
			namespaces := follow(t, c, kube.Resource[*corev1.NamespaceList]{Name: "namespaces", Client: core.Namespaces()},
				func(n *corev1.Namespace) string { return n.Name })
			receive(t, pods, "all [svc0-6b7f9c8d5-10.0.0.0 10.0.0.0 True svc0-6b7f9c8d5-10.0.0.1 10.0.0.1 True "+
				"svc1-6b7f9c8d5-10.0.0.2 10.0.0.2 True svc1-6b7f9c8d5-10.0.0.3 10.0.0.3 True "+
				"svc2-6b7f9c8d5-10.0.0.4 10.0.0.4 True svc2-6b7f9c8d5-10.0.0.5 10.0.0.5 True]")
			receive(t, slices, "all [ns0/svc0 10.0.0.0 true 10.0.0.1 true ns0/svc2 10.0.0.4 true 10.0.0.5 true "+
				"ns1/svc1 10.0.0.2 true 10.0.0.3 true]")
			receive(t, services, "all [svc0 10.96.0.0 http svc1 10.96.0.1 http svc2 10.96.0.2 http]")
			receive(t, namespaces, "all [ns0 ns1]")

			s.Set(1, 0, "")
			receive(t, pods, "set svc1-6b7f9c8d5-10.0.0.2 10.0.0.2 False")
			receive(t, slices, "set ns1/svc1 10.0.0.2 false 10.0.0.3 true")
			s.Set(1, 1, "172.20.0.1")
			receive(t, pods, "set svc1-6b7f9c8d5-172.20.0.1 172.20.0.1 True")
			receive(t, slices, "set ns1/svc1 10.0.0.2 false 172.20.0.1 true")
			receive(t, pods, "deleted svc1-6b7f9c8d5-10.0.0.3 10.0.0.3 True")

			// A list is not older than the changes: kube.Watch would take that for lost data.
			list, err := core.Pods("").List(t.Context(), metav1.ListOptions{Limit: 4})
			if err != nil {
				t.Fatal(err)
			}
			if got, want := list.Items[3].Name, "svc1-6b7f9c8d5-172.20.0.1"; list.ResourceVersion != "6" || got != want {
				t.Errorf("version %s with %s, want 6 with %s", list.ResourceVersion, got, want)
			}
		})
	}
}

// A list in parts has each object once.
func TestPages(t *testing.T) {
	t.Parallel()
	_, c := connect(t, false)
	var names []string
	o := metav1.ListOptions{Limit: 400}
	for {
		list, err := c.Client.CoreV1().Nodes().List(t.Context(), o)
		if err != nil {
			t.Fatal(err)
		}
		for _, n := range list.Items {
			names = append(names, n.Name)
		}
		if o.Continue = list.Continue; o.Continue == "" {
			break
		}
	}
	slices.Sort(names)
	if len(slices.Compact(names)) != Nodes {
		t.Errorf("%d nodes, want %d", len(names), Nodes)
	}
}

// BenchmarkPods is what the server needs for the Pods of 10,000 Services.
func BenchmarkPods(b *testing.B) {
	size := 0
	k := newMesh(fleet.Shape{Services: 10000, Endpoints: 10, Namespaces: 100}).kinds[pods]
	for i := 0; b.Loop(); i++ {
		size = len(frame(watch.Added, k.object(i%k.count)))
	}
	b.ReportMetric(float64(size), "B/pod")
}
