package services

import (
	"context"
	"errors"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes/fake"
	kubetesting "k8s.io/client-go/testing"

	"github.com/ashore-mesh/ashore/registry"
	"github.com/ashore-mesh/ashore/registry/kube"
)

// The objects of most tests: Service shop/web with the Pod web-1 on node-1.

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
			Labels: map[string]string{"app": "web", tlsModeLabel: "istio"}},
		Spec:   corev1.PodSpec{NodeName: "node-1", ServiceAccountName: "web"},
		Status: corev1.PodStatus{PodIP: "10.0.0.1"},
	}
}

func webNode() *corev1.Node {
	return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node-1",
		Labels: map[string]string{regionLabel: "r", zoneLabel: "z"}}}
}

// webEndpoint is what they become.
func webEndpoint() registry.Endpoint {
	return registry.Endpoint{
		Address: "10.0.0.1", Ports: map[string]uint32{"http": 8080}, ServiceAccount: "web", Namespace: "shop",
		Labels:   map[string]string{"app": "web", tlsModeLabel: "istio", registry.ClusterLabel: "east"},
		Workload: "web-1", TLSMode: "istio", Locality: registry.Locality{Region: "r", Zone: "z"},
	}
}

// receiver runs a Source against an API server in memory, and receives its batches. It is for use in
// synctest.
type receiver struct {
	t       *testing.T
	client  *fake.Clientset
	source  *Source
	batches chan batch
	end     func()
	running sync.WaitGroup // the watches

	mu      sync.Mutex
	failing map[string]error    // by resource; "*" is all
	open    map[string]*endable // the watches, by resource
	expired map[string]bool     // the next watch of the resource ends with 410
}

func receive(t *testing.T, objects ...runtime.Object) *receiver {
	r := &receiver{
		t: t, client: fake.NewClientset(objects...), batches: make(chan batch),
		failing: map[string]error{}, open: map[string]*endable{}, expired: map[string]bool{},
	}
	r.client.PrependReactor("list", "*", func(a kubetesting.Action) (bool, runtime.Object, error) {
		err := r.failure(a.GetResource())
		return err != nil, nil, err
	})
	r.client.PrependWatchReactor("*", func(a kubetesting.Action) (bool, watch.Interface, error) {
		if err := r.failure(a.GetResource()); err != nil {
			return true, nil, err
		}
		w, err := r.watch(a.GetResource(), a.GetNamespace())
		return true, w, err
	})
	c := &kube.Cluster{Name: "kubernetes", Options: kube.DefaultOptions(), Log: hclog.NewNullLogger(), Client: r.client}
	c.Options.Cluster = "east"
	r.source = New(Config{Cluster: c})
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() { ended <- r.source.Run(ctx, r.batches) }()
	r.end = func() {
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("Run returned %v", err)
		}
		r.running.Wait()
	}
	return r
}

func (r *receiver) failure(of schema.GroupVersionResource) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if err := r.failing[of.Resource]; err != nil {
		return err
	}
	return r.failing["*"]
}

// endable is a watch that the test can end.
type endable struct {
	events chan watch.Event
	stop   func()
}

func (w *endable) ResultChan() <-chan watch.Event { return w.events }

func (w *endable) Stop() { w.stop() }

func (r *receiver) watch(of schema.GroupVersionResource, namespace string) (watch.Interface, error) {
	from, err := r.client.Tracker().Watch(of, namespace)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(context.Background())
	w := &endable{events: make(chan watch.Event, 1), stop: cancel}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.open[of.Resource] = w
	if r.expired[of.Resource] {
		delete(r.expired, of.Resource)
		w.events <- watch.Event{Type: watch.Error, Object: &metav1.Status{
			Status: metav1.StatusFailure, Code: http.StatusGone, Reason: metav1.StatusReasonExpired}}
	}
	r.running.Go(func() {
		defer close(w.events)
		defer from.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case e := <-from.ResultChan():
				select {
				case <-ctx.Done():
				case w.events <- e:
				}
			}
		}
	})
	return w, nil
}

// fail makes requests for a resource fail, and ends its watches. With a nil err requests succeed
// again, and the watches cannot continue where they ended.
func (r *receiver) fail(resource string, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.failing[resource] = err
	for name, w := range r.open {
		if name == resource || resource == "*" {
			w.Stop()
			r.expired[name] = true
		}
	}
}

// next returns the next batch.
func (r *receiver) next() batch {
	r.t.Helper()
	select {
	case b := <-r.batches:
		return b
	case <-time.After(time.Minute):
		r.t.Fatal("no batch arrived")
		panic("unreachable")
	}
}

// none fails the test if a batch arrives within some time.
func (r *receiver) none(within time.Duration) {
	r.t.Helper()
	select {
	case b := <-r.batches:
		r.t.Fatalf("got %+v, want no batch", b)
	case <-time.After(within):
	}
}

// web returns the one endpoint in a batch with the one service shop/web.
func (r *receiver) web(b batch) registry.Endpoint {
	r.t.Helper()
	if len(b.Updates) != 1 || b.Updates[0].Group != "shop/web" || len(b.Updates[0].Items) != 1 ||
		b.Updates[0].Items[0].Endpoints.Len() != 1 {
		r.t.Fatalf("got %+v, want shop/web with one endpoint", b)
	}
	return b.Updates[0].Items[0].Endpoints.Items[0]
}

// must fails the test if a request fails.
func must[T any](t *testing.T) func(T, error) {
	return func(_ T, err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
}

func forbidden(resource string) error {
	return apierrors.NewForbidden(schema.GroupResource{Resource: resource}, "", errors.New("no role"))
}
