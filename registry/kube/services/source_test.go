package services

import (
	"context"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"

	"github.com/ashore-mesh/ashore/registry"
	"github.com/ashore-mesh/ashore/registry/kube"
)

// The cluster of most tests: Service shop/web with the Pod web-1.
func webService() *corev1.Service {
	return &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web"},
		Spec: corev1.ServiceSpec{
			ClusterIP: "10.96.0.1", Selector: map[string]string{"app": "web"},
			Ports: []corev1.ServicePort{{Name: "http", Port: 80}},
		},
	}
}

func webSlice(ready bool) *discoveryv1.EndpointSlice {
	name, number := "http", int32(8080)
	return &discoveryv1.EndpointSlice{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web-abc",
			Labels: map[string]string{discoveryv1.LabelServiceName: "web"}},
		AddressType: discoveryv1.AddressTypeIPv4,
		Ports:       []discoveryv1.EndpointPort{{Name: &name, Port: &number}},
		Endpoints: []discoveryv1.Endpoint{{
			Addresses: []string{"10.0.0.1"}, Conditions: discoveryv1.EndpointConditions{Ready: &ready},
			TargetRef: &corev1.ObjectReference{Kind: "Pod", Namespace: "shop", Name: "web-1"},
		}},
	}
}

func webPod() *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web-1",
			Labels: map[string]string{"app": "web", "security.istio.io/tlsMode": "istio"}},
		Spec:   corev1.PodSpec{NodeName: "node-1", ServiceAccountName: "web"},
		Status: corev1.PodStatus{PodIP: "10.0.0.1"},
	}
}

func node() *corev1.Node {
	return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node-1",
		Labels: map[string]string{"topology.kubernetes.io/region": "r", "topology.kubernetes.io/zone": "z"}}}
}

// receiver runs a source and keeps what it sends.
type receiver struct {
	t       *testing.T
	client  *fake.Clientset
	source  *Source
	batches chan batch
}

func start(t *testing.T, objects ...runtime.Object) *receiver {
	t.Helper()
	client := fake.NewClientset(objects...)
	r := &receiver{t: t, client: client, batches: make(chan batch)}
	r.run()
	return r
}

// run runs the source until the test ends.
func (r *receiver) run() {
	c := &kube.Cluster{Name: "kubernetes", Options: kube.DefaultOptions(), Log: hclog.NewNullLogger(), Client: r.client}
	c.Options.Cluster = "east"
	r.source = New(Config{Cluster: c})
	ctx, cancel := context.WithCancel(r.t.Context())
	ended := make(chan error)
	go func() { ended <- r.source.Run(ctx, r.batches) }()
	r.t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			r.t.Errorf("Run returned %v", err)
		}
	})
}

// next returns the next batch.
func (r *receiver) next() batch {
	r.t.Helper()
	select {
	case b := <-r.batches:
		return b
	case <-time.After(20 * time.Second):
		r.t.Fatal("no batch arrived")
		panic("unreachable")
	}
}

func TestSource(t *testing.T) {
	t.Parallel()
	r := start(t, webService(), webSlice(true), webPod(), node())
	b := r.next()
	if !b.Full || b.Explicit || b.Down != nil || len(b.Updates) != 1 || b.Updates[0].Group != "shop/web" {
		t.Fatalf("first batch %+v, want a Full one with shop/web", b)
	}
	in := b.Updates[0].Items[0]
	if in.Service.Host != "web.shop.svc.cluster.local" || in.Endpoints.Len() != 1 {
		t.Fatalf("got %+v with %+v", in.Service, in.Endpoints)
	}
	want := registry.Endpoint{
		Address: "10.0.0.1", Ports: map[string]uint32{"http": 8080}, ServiceAccount: "web", Namespace: "shop",
		Labels:   map[string]string{"app": "web", "security.istio.io/tlsMode": "istio", "topology.istio.io/cluster": "east"},
		Workload: "web-1", TLSMode: "istio", Locality: registry.Locality{Region: "r", Zone: "z"},
	}
	if got := in.Endpoints.Items[0]; !got.Equal(&want) {
		t.Errorf("got endpoint\n%+v\nwant\n%+v", got, want)
	}
}
