package services

import (
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// The functions in this file remove what is not used from an object. Most of a Pod is not.

func stripService(s *corev1.Service) {
	s.ObjectMeta = metav1.ObjectMeta{
		Namespace: s.Namespace, Name: s.Name, CreationTimestamp: s.CreationTimestamp, Labels: s.Labels,
		Annotations: only(s.Annotations, exportToAnnotation, distributionAnnotation),
	}
	spec := s.Spec
	s.Spec = corev1.ServiceSpec{
		Type: spec.Type, Ports: spec.Ports, Selector: spec.Selector, ExternalName: spec.ExternalName,
		ClusterIP: spec.ClusterIP, ClusterIPs: spec.ClusterIPs, IPFamilies: spec.IPFamilies,
		PublishNotReadyAddresses: spec.PublishNotReadyAddresses, TrafficDistribution: spec.TrafficDistribution,
	}
	s.Status = corev1.ServiceStatus{}
}

func stripSlice(s *discoveryv1.EndpointSlice) {
	s.ObjectMeta = metav1.ObjectMeta{
		Namespace: s.Namespace, Name: s.Name, Labels: only(s.Labels, discoveryv1.LabelServiceName),
	}
	for i, e := range s.Endpoints {
		s.Endpoints[i] = discoveryv1.Endpoint{Addresses: e.Addresses, Conditions: e.Conditions, TargetRef: e.TargetRef}
	}
}

func stripPod(p *corev1.Pod) {
	p.ObjectMeta = metav1.ObjectMeta{
		Namespace: p.Namespace, Name: p.Name, GenerateName: p.GenerateName, Labels: p.Labels,
		OwnerReferences: p.OwnerReferences, DeletionTimestamp: p.DeletionTimestamp,
	}
	p.Spec = corev1.PodSpec{
		NodeName: p.Spec.NodeName, ServiceAccountName: p.Spec.ServiceAccountName,
		Containers: portsOnly(p.Spec.Containers), InitContainers: portsOnly(p.Spec.InitContainers),
	}
	p.Status = corev1.PodStatus{PodIP: p.Status.PodIP, PodIPs: p.Status.PodIPs, Conditions: p.Status.Conditions}
}

// portsOnly returns the containers that have ports, without anything else.
func portsOnly(containers []corev1.Container) (out []corev1.Container) {
	for _, c := range containers {
		if len(c.Ports) > 0 {
			out = append(out, corev1.Container{Ports: c.Ports, RestartPolicy: c.RestartPolicy})
		}
	}
	return out
}

func stripNode(n *corev1.Node) {
	n.ObjectMeta = metav1.ObjectMeta{
		Name: n.Name, Labels: only(n.Labels, regionLabel, oldRegionLabel, zoneLabel, oldZoneLabel, subZoneLabel),
	}
	n.Spec, n.Status = corev1.NodeSpec{}, corev1.NodeStatus{}
}

func stripNamespace(n *corev1.Namespace) {
	n.ObjectMeta = metav1.ObjectMeta{
		Name: n.Name, Labels: only(n.Labels, networkLabel), Annotations: only(n.Annotations, distributionAnnotation),
	}
	n.Spec, n.Status = corev1.NamespaceSpec{}, corev1.NamespaceStatus{}
}

// only returns the entries with these keys. Nil if there are none.
func only(all map[string]string, keys ...string) (out map[string]string) {
	for _, k := range keys {
		if v, ok := all[k]; ok {
			if out == nil {
				out = map[string]string{}
			}
			out[k] = v
		}
	}
	return out
}
