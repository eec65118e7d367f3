package services

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/ashore-mesh/ashore/registry"
)

// strip removes from an object most of what is not used, so that a list of 100,000 Pods fits into
// memory.
func strip(object any) {
	if o, ok := object.(metav1.Object); ok {
		o.SetManagedFields(nil)
		kept := map[string]string{}
		for _, k := range []string{exportToAnnotation, registry.DistributionAnnotation} {
			if v, ok := o.GetAnnotations()[k]; ok {
				kept[k] = v
			}
		}
		o.SetAnnotations(kept)
	}
	switch o := object.(type) {
	case *corev1.Pod:
		o.Spec = corev1.PodSpec{
			NodeName: o.Spec.NodeName, ServiceAccountName: o.Spec.ServiceAccountName,
			Containers: portsOnly(o.Spec.Containers), InitContainers: portsOnly(o.Spec.InitContainers),
		}
		o.Status = corev1.PodStatus{PodIP: o.Status.PodIP, PodIPs: o.Status.PodIPs, Conditions: o.Status.Conditions}
	case *corev1.Node:
		o.Spec, o.Status = corev1.NodeSpec{}, corev1.NodeStatus{}
	}
}

func portsOnly(containers []corev1.Container) []corev1.Container {
	out := make([]corev1.Container, len(containers))
	for i, c := range containers {
		out[i] = corev1.Container{Ports: c.Ports, RestartPolicy: c.RestartPolicy}
	}
	return out
}
