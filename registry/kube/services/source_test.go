package services

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/ashore-mesh/ashore/internal/feed"
	"github.com/ashore-mesh/ashore/registry"
)

// The first batch is Full. Each change arrives as a batch with the services that it concerns.
func TestChanges(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := receive(t, webService(), webSlice(true), webPod(), webNode())
		defer r.end()
		b := r.next()
		want := webEndpoint()
		if got := r.web(b); !b.Full || b.Explicit || b.Down != nil || b.Source != "kubernetes" || !got.Equal(&want) {
			t.Errorf("first batch %+v with endpoint\n%+v, want\n%+v", b, got, want)
		}
		time.Sleep(time.Second) // until all is watched
		core, slices := r.client.CoreV1(), r.client.DiscoveryV1().EndpointSlices("shop")
		ctx := t.Context()

		began := time.Now()
		must[*discoveryv1.EndpointSlice](t)(slices.Update(ctx, webSlice(false), metav1.UpdateOptions{}))
		b = r.next()
		if got := r.web(b); got.Health != registry.Unhealthy || b.Full || !b.Explicit || b.Since.Before(began) {
			t.Errorf("not ready: got %+v", b)
		}
		if d := time.Since(began); d > 2*time.Millisecond {
			t.Errorf("a change of readiness was sent after %s", d)
		}

		pod := webPod()
		pod.Status.Message = "nothing of interest"
		must[*corev1.Pod](t)(core.Pods("shop").Update(ctx, pod, metav1.UpdateOptions{}))
		r.none(time.Minute)
		pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
		must[*corev1.Pod](t)(core.Pods("shop").Update(ctx, pod, metav1.UpdateOptions{}))
		r.none(time.Minute) // the EndpointSlice decides

		node := webNode()
		node.Labels[zoneLabel] = "other"
		must[*corev1.Node](t)(core.Nodes().Update(ctx, node, metav1.UpdateOptions{}))
		if got := r.web(r.next()); got.Locality.Zone != "other" {
			t.Errorf("the node moved: got %+v", got)
		}
		must[*corev1.Namespace](t)(core.Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{
			Name: "istio-system", Labels: map[string]string{registry.NetworkLabel: "net"}}}, metav1.CreateOptions{}))
		if got := r.web(r.next()); got.Network != "net" {
			t.Errorf("the network has a name: got %+v", got)
		}

		if err := core.Services("shop").Delete(ctx, "web", metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		if b := r.next(); b.Full || !b.Explicit || len(b.Updates) != 1 || len(b.Updates[0].Items) != 0 {
			t.Errorf("deleted: got %+v", b)
		}
	})
}

// Changes within a few milliseconds are one batch.
func TestCoalescing(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := receive(t, webService(), webSlice(true), webPod())
		defer r.end()
		r.next()
		time.Sleep(time.Second)
		go func() {
			for i := range 20 {
				s := webSlice(i%2 == 1)
				r.client.DiscoveryV1().EndpointSlices("shop").Update(context.Background(), s, metav1.UpdateOptions{})
				time.Sleep(time.Millisecond)
			}
		}()
		n := 0
		for end := time.After(time.Second); ; {
			select {
			case <-r.batches:
				n++
				continue
			case <-end:
			}
			break
		}
		if n < 4 || n > 6 {
			t.Errorf("20 changes in 20 ms were %d batches, want one in 5 ms", n)
		}
	})
}

// An outage of the API server is one batch. Afterwards all is sent again.
func TestOutage(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := receive(t, webService(), webSlice(true), webPod())
		defer r.end()
		r.next()
		time.Sleep(time.Second)
		r.fail("*", errors.New("connection refused"))
		if b := r.next(); b.Down == nil || !strings.Contains(b.Down.Error(), "connection refused") || b.Full {
			t.Fatalf("got %+v, want Down", b)
		}
		time.Sleep(time.Second)
		must[*discoveryv1.EndpointSlice](t)(r.client.DiscoveryV1().EndpointSlices("shop").Update(t.Context(),
			webSlice(false), metav1.UpdateOptions{}))
		for end := time.After(time.Hour); ; {
			select {
			case b := <-r.batches: // of another kind of objects
				if b.Down == nil {
					t.Fatalf("got %+v while the API server is away", b)
				}
				continue
			case <-end:
			}
			break
		}
		r.fail("*", nil)
		if b := r.next(); !b.Full || b.Explicit || b.Down != nil || r.web(b).Health != registry.Unhealthy {
			t.Errorf("got %+v, want a Full batch with the change", b)
		}
	})
}

// A cluster that cannot be reached at first sends no content.
func TestUnreachableAtFirst(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := receive(t, webService(), webSlice(true), webPod())
		r.fail("pods", errors.New("connection refused"))
		defer r.end()
		for b := r.next(); b.Down != nil; b = r.next() {
			r.fail("pods", nil)
			if b.Full || len(b.Updates) > 0 {
				t.Errorf("got %+v, want no content", b)
			}
		}
	})
}

// When one watch cannot continue, all objects are listed again, and the batch is Full.
func TestExpiredWatch(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := receive(t, webService(), webSlice(true), webPod())
		defer r.end()
		r.next()
		time.Sleep(time.Second)
		r.fail("endpointslices", nil) // ends the watch, which expires
		if b := r.next(); !b.Full || b.Explicit || len(b.Updates) != 1 {
			t.Errorf("got %+v, want a Full batch", b)
		}
	})
}

// A right that is missing is reported. Without those for Nodes and Namespaces the rest works.
func TestRights(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := receive(t, webService(), webSlice(true), webPod(), webNode())
		r.fail("nodes", forbidden("nodes"))
		r.fail("pods", forbidden("pods"))
		defer r.end()
		if b := r.next(); b.Down == nil || !strings.Contains(b.Down.Error(), "list and watch pods: give its account") {
			t.Fatalf("got %+v, want the missing right", b)
		}
		r.fail("pods", nil)
		b := r.next()
		if len(b.Updates) != 2 || b.Updates[0].Group != "rights" || !b.Full {
			t.Fatalf("got %+v, want shop/web and a warning", b)
		}
		p := b.Updates[0].Problems[0]
		if p.Severity != feed.Warning || !strings.Contains(p.Text, "list and watch nodes") ||
			!strings.HasSuffix(p.Text, "endpoints have no locality, unless their Pods have the label istio-locality") {
			t.Errorf("got warning %v", p)
		}
		if ep := b.Updates[1].Items[0].Endpoints.Items[0]; ep.Locality != (registry.Locality{}) {
			t.Errorf("got locality %v without the right", ep.Locality)
		}
		r.fail("nodes", nil)
		b = r.next()
		for len(b.Updates) < 2 {
			b = r.next()
		}
		if ep := b.Updates[1].Items[0].Endpoints.Items[0]; len(b.Updates[0].Problems) > 0 || ep.Locality.Zone != "z" {
			t.Errorf("got %+v after the right was given", b)
		}
	})
}

// Objects that the API server lost are not deleted. Rule R4 keeps the services, with their endpoints.
func TestLostData(t *testing.T) {
	t.Parallel()
	for _, first := range []string{"services", "endpointslices", "pods"} {
		synctest.Test(t, func(t *testing.T) {
			r := receive(t, webService(), webSlice(true), webPod())
			defer r.end()
			m := feed.NewMerger(feed.Config[registry.Host, registry.Instances]{
				KeyOf: func(in registry.Instances) registry.Host { return registry.Host(in.Service.Host) },
				Union: true, MassRemoval: 10 * time.Minute,
			}, []feed.SourceConfig{{Name: "kubernetes"}})
			m.Apply(r.next(), time.Now())
			time.Sleep(time.Second)
			r.fail("*", errors.New("connection refused"))
			ctx := t.Context()
			errs := errors.Join(
				r.client.CoreV1().Services("shop").Delete(ctx, "web", metav1.DeleteOptions{}),
				r.client.CoreV1().Pods("shop").Delete(ctx, "web-1", metav1.DeleteOptions{}),
				r.client.DiscoveryV1().EndpointSlices("shop").Delete(ctx, "web-abc", metav1.DeleteOptions{}))
			if errs != nil {
				t.Fatal(errs)
			}
			// The objects of one kind are listed long before the others.
			r.mu.Lock()
			for name := range r.open {
				r.failing[name] = r.failing["*"]
			}
			r.failing["*"], r.failing[first] = nil, nil
			r.mu.Unlock()
			kept := func() {
				t.Helper()
				in := m.Items("web.shop.svc.cluster.local")
				if len(in) != 1 || in[0].Item.Endpoints.Len() != 1 {
					t.Errorf("%s first: got %+v, want the service with its endpoint", first, in)
				}
			}
			for end := time.After(time.Minute); ; {
				select {
				case b := <-r.batches:
					m.Apply(b, time.Now())
					kept()
					continue
				case <-end:
				}
				break
			}
			r.mu.Lock()
			clear(r.failing)
			r.mu.Unlock()
			for {
				b := r.next()
				m.Apply(b, time.Now())
				kept()
				if b.Full {
					break
				}
			}
		})
	}
}

// Pods and Selectors follow the cluster, and those who watch them are notified.
func TestShared(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := receive(t, webService(), webSlice(true), webPod())
		defer r.end()
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		changed := r.source.Watch(ctx)
		r.next()
		<-changed
		names := func() []string {
			var out []string
			for k, ep := range r.source.Pods().All() {
				out = append(out, k.String()+" "+ep.Address+" "+ep.Health.String())
			}
			return out
		}
		if got := names(); !slices.Equal(got, []string{"shop/web-1 10.0.0.1 unhealthy"}) {
			t.Errorf("got Pods %v", got)
		}
		s := r.source.Selectors().At(registry.ObjectKey{Namespace: "shop", Name: "web"})
		if s == nil || !maps.Equal(s.Labels, map[string]string{"app": "web"}) ||
			s.Service.Host != "web.shop.svc.cluster.local" {
			t.Errorf("got selector %+v", s)
		}
		time.Sleep(time.Second)
		pod := webPod()
		pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
		must[*corev1.Pod](t)(r.client.CoreV1().Pods("shop").Update(ctx, pod, metav1.UpdateOptions{}))
		<-changed
		if got := names(); !slices.Equal(got, []string{"shop/web-1 10.0.0.1 healthy"}) {
			t.Errorf("got Pods %v after one is ready", got)
		}
	})
}
