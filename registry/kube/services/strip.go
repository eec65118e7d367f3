package services

import (
	"maps"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/ashore-mesh/ashore/registry"
)

// named is what is used of an object that has only a name.
type named[V any] struct {
	name  string
	value V
}

// stripper returns a function that returns what is used of an object, so that a list of 100,000 Pods
// fits into memory: a *corev1.Service, *slice, *pod, named[registry.Locality] or named[namespace].
// Pods share labels and ports with the Pod before if they are equal: the Pods of one ReplicaSet are
// listed one after the other. One goroutine calls the function.
func (o *objects) stripper() func(object any) any {
	cluster, last := o.options.Cluster, &pod{}
	return func(object any) any {
		switch x := object.(type) {
		case *corev1.Service:
			return stripService(x)
		case *discoveryv1.EndpointSlice:
			return newSlice(x)
		case *corev1.Pod:
			p := newPod(x, cluster)
			if maps.Equal(p.endpoint.Labels, last.endpoint.Labels) {
				p.endpoint.Labels = last.endpoint.Labels
			}
			if maps.Equal(p.endpoint.Ports, last.endpoint.Ports) {
				p.endpoint.Ports = last.endpoint.Ports
			}
			last = p
			return p
		case *corev1.Node:
			return named[registry.Locality]{x.Name, localityOf(x)}
		case *corev1.Namespace:
			return named[namespace]{x.Name, newNamespace(x)}
		}
		return object
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

// localityOf returns the locality of a Node.
func localityOf(n *corev1.Node) registry.Locality {
	return registry.Locality{
		Region: n.Labels[regionLabel], Zone: n.Labels[zoneLabel], SubZone: n.Labels[subZoneLabel],
	}
}

// namespace is what is used of a Namespace.
type namespace struct{ network, distribution string }

func newNamespace(n *corev1.Namespace) namespace {
	return namespace{n.Labels[registry.NetworkLabel], n.Annotations[registry.DistributionAnnotation]}
}
