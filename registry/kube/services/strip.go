package services

import (
	"maps"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/ashore-mesh/ashore/registry"
)

// The functions of this file return what is used of an object, so that a list of 100,000 Pods fits
// into memory.

// named is what is used of an object that has only a name.
type named[V any] struct {
	name  string
	value V
}

// stripPods returns a function for Pods. A Pod shares its labels and ports with the Pod before if
// they are equal: the Pods of one ReplicaSet are listed one after the other. One goroutine calls it.
func stripPods(cluster string) func(*corev1.Pod) *pod {
	last := &pod{}
	return func(object *corev1.Pod) *pod {
		p := newPod(object, cluster)
		if maps.Equal(p.endpoint.Labels, last.endpoint.Labels) {
			p.endpoint.Labels = last.endpoint.Labels
		}
		if maps.Equal(p.endpoint.Ports, last.endpoint.Ports) {
			p.endpoint.Ports = last.endpoint.Ports
		}
		last = p
		return p
	}
}

func stripService(s *corev1.Service) *corev1.Service {
	kept := map[string]string{}
	for _, k := range []string{exportToAnnotation, registry.DistributionAnnotation} {
		if v, ok := s.Annotations[k]; ok {
			kept[k] = v
		}
	}
	return &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: s.Namespace, Name: s.Name, Labels: s.Labels, Annotations: kept,
			CreationTimestamp: s.CreationTimestamp,
		},
		Spec: s.Spec, Status: s.Status,
	}
}

func stripNode(n *corev1.Node) named[registry.Locality] {
	return named[registry.Locality]{n.Name, registry.Locality{
		Region: n.Labels[regionLabel], Zone: n.Labels[zoneLabel], SubZone: n.Labels[subZoneLabel],
	}}
}

// namespace is what is used of a Namespace.
type namespace struct{ network, distribution string }

func stripNamespace(n *corev1.Namespace) named[namespace] {
	return named[namespace]{n.Name, namespace{
		n.Labels[registry.NetworkLabel], n.Annotations[registry.DistributionAnnotation],
	}}
}
