package services

import (
	"encoding/json"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/ashore-mesh/ashore/registry"
)

func sortedKeys(m map[key]struct{}) []key { return slices.SortedFunc(maps.Keys(m), key.Compare) }

// FuzzObjects decodes arbitrary objects. They never crash the converter, and what they become can be
// saved and loaded.
func FuzzObjects(f *testing.F) {
	for i, object := range []any{webService(), webSlice(true), webPod(), webNode()} {
		text, err := json.Marshal(object)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(uint8(i), text)
	}
	kinds := []string{"Service", "EndpointSlice", "Pod", "Node", "Namespace"}
	f.Fuzz(func(t *testing.T, kind uint8, text []byte) {
		object := newObject(kinds[int(kind)%len(kinds)])
		if json.Unmarshal(text, object) != nil {
			return
		}
		o := testObjects()
		for _, other := range []any{webService(), webSlice(true), webPod(), webNode()} {
			set(o, other, false)
		}
		o.convert()
		set(o, object, false)
		o.convert()
		for k := range o.used() {
			saved, err := json.Marshal(o.services[k].mesh.instances[0])
			if err != nil {
				t.Fatal(err)
			}
			var loaded registry.Instances
			if err := json.Unmarshal(saved, &loaded); err != nil {
				t.Fatalf("%s cannot be loaded: %v", saved, err)
			}
		}
		set(o, object, true)
		o.convert()
	})
}

// FuzzOrder applies events in random order. The services are those that a list of the last objects
// gives, and the indexes hold nothing else.
func FuzzOrder(f *testing.F) {
	f.Add(uint64(1), uint8(50))
	f.Add(uint64(2), uint8(200))
	f.Fuzz(func(t *testing.T, seed uint64, events uint8) {
		r := rand.New(rand.NewPCG(seed, 1))
		o, last := testObjects(), map[string]any{}
		for range events {
			object := randomObject(r)
			meta := object.(metav1.Object)
			id := kindOf(object) + meta.GetNamespace() + "/" + meta.GetName()
			deleted := last[id] != nil && r.IntN(3) == 0
			set(o, object, deleted)
			if last[id] = object; deleted {
				delete(last, id)
			}
			if r.IntN(4) == 0 {
				o.convert()
			}
		}
		listed := testObjects()
		for _, object := range last {
			set(listed, object, false)
		}
		if want, got := describe(listed), describe(o); got != want {
			t.Errorf("after events:\n%s\nafter a list:\n%s", got, want)
		}
		count := func(o *objects) [7]int {
			return [7]int{len(o.services), len(o.slices), len(o.pods), len(o.slicesOf), len(o.nodes),
				o.selection.pods.Len(), o.selection.selectors.Len()}
		}
		if want, got := count(listed), count(o); got != want {
			t.Errorf("indexes have %v entries after events, and %v after a list", got, want)
		}
		for k, s := range listed.selection.selectors.All() {
			if got := o.selection.selectors.At(k); got == nil || !got.Service.Equal(s.Service) ||
				!maps.Equal(got.Labels, s.Labels) {
				t.Errorf("selector of %s is %+v, want %+v", k, got, s)
			}
		}
		for k, ep := range listed.selection.pods.All() {
			if got := o.selection.pods.At(k); got == nil || !got.Equal(ep) {
				t.Errorf("Pod %s is %+v, want %+v", k, got, ep)
			}
		}
	})
}

func kindOf(object any) string {
	switch object.(type) {
	case *corev1.Service:
		return "Service "
	case *discoveryv1.EndpointSlice:
		return "EndpointSlice "
	case *corev1.Pod:
		return "Pod "
	case *corev1.Node:
		return "Node "
	}
	return "Namespace "
}

// randomObject returns one of few objects, in one of few versions.
func randomObject(r *rand.Rand) any {
	pick := func(of ...string) string { return of[r.IntN(len(of))] }
	namespace := pick("shop", "istio-system")
	switch r.IntN(5) {
	case 0:
		s := webService()
		s.Namespace, s.Name = namespace, pick("web", "db")
		s.Spec.ClusterIP = pick("10.96.0.1", "10.96.0.2", "None")
		s.Spec.Ports[0].Name = pick("http", "tcp")
		s.Spec.Selector["app"] = pick("web", "db")
		return s
	case 1:
		s := webSlice(r.IntN(2) == 0)
		s.Namespace, s.Name = namespace, pick("a", "b")
		s.Labels[discoveryv1.LabelServiceName] = pick("web", "db", "")
		for _, address := range []string{"10.0.0.2", "10.0.0.3"} {
			s.Endpoints = append(s.Endpoints, discoveryv1.Endpoint{Addresses: []string{address},
				TargetRef: &corev1.ObjectReference{Kind: "Pod", Name: pick("web-1", "web-2")}})
		}
		s.Endpoints = s.Endpoints[:r.IntN(len(s.Endpoints)+1)]
		return s
	case 2:
		p := webPod()
		p.Namespace, p.Name = namespace, pick("web-1", "web-2")
		p.Spec.NodeName, p.Status.PodIP = pick("node-1", "node-2"), pick("10.0.0.1", "10.0.0.2", "")
		p.Labels["v"] = pick("1", "2")
		if r.IntN(2) == 0 {
			p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
		}
		return p
	case 3:
		n := webNode()
		n.Name, n.Labels[zoneLabel] = pick("node-1", "node-2"), pick("z", "y", "")
		return n
	default:
		return &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace,
			Labels:      map[string]string{registry.NetworkLabel: pick("net", "")},
			Annotations: map[string]string{registry.DistributionAnnotation: pick("PreferClose", "")}}}
	}
}
