package apiserver

import (
	"crypto/sha256"
	"embed"
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/yaml"

	"github.com/ashore-mesh/ashore/bench/fleet"
)

// Nodes is how many nodes there are.
const Nodes = 1000

// Paths of the kinds that change.
const (
	pods           = "/api/v1/pods"
	nodes          = "/api/v1/nodes"
	endpointSlices = "/apis/discovery.k8s.io/v1/endpointslices"
)

// kind makes the objects of one kind by number.
type kind struct {
	version, name string
	count         int
	object        func(i int) object
}

type object interface {
	metav1.Object
	Marshal() ([]byte, error)
}

// mesh makes the objects of a shape from templates.
type mesh struct {
	shape fleet.Shape
	kinds map[string]kind // by path

	aPod       corev1.Pod
	aNode      corev1.Node
	aService   corev1.Service
	aSlice     discoveryv1.EndpointSlice
	aNamespace corev1.Namespace
}

//go:embed templates/*.yaml
var templates embed.FS

// template reads a template.
func template[T any](name string) (t T) {
	b, err := templates.ReadFile("templates/" + name + ".yaml")
	if err == nil {
		err = yaml.UnmarshalStrict(b, &t)
	}
	if err != nil {
		panic(fmt.Errorf("template of a %s: %w", name, err))
	}
	return t
}

func newMesh(shape fleet.Shape) *mesh {
	m := &mesh{
		shape: shape, aPod: template[corev1.Pod]("pod"), aNode: template[corev1.Node]("node"),
		aService: template[corev1.Service]("service"), aSlice: template[discoveryv1.EndpointSlice]("endpointslice"),
		aNamespace: template[corev1.Namespace]("namespace"),
	}
	m.kinds = map[string]kind{
		nodes:                {"v1", "Node", Nodes, m.node},
		"/api/v1/services":   {"v1", "Service", shape.Services, m.service},
		"/api/v1/namespaces": {"v1", "Namespace", shape.Namespaces, m.namespace},
		pods: {"v1", "Pod", shape.Services * shape.Endpoints, func(i int) object {
			return m.pod(m.podAt(i/shape.Endpoints, i%shape.Endpoints))
		}},
		endpointSlices: {"discovery.k8s.io/v1", "EndpointSlice", shape.Services, func(i int) object {
			var all []pod
			for e := range shape.Endpoints {
				all = append(all, m.podAt(i, e))
			}
			return m.slice(i, all)
		}},
	}
	return m
}

// name names an object.
func name(o object, namespace, name string) {
	o.SetNamespace(namespace)
	o.SetName(name)
	o.SetResourceVersion(fmt.Sprint(first))
	o.SetUID(types.UID(fmt.Sprintf("%x", sha256.Sum256([]byte(namespace+"/"+name)))[:36]))
}

// with returns labels with another one. Objects share what they have in common with their template.
func with(labels map[string]string, key, value string) map[string]string {
	labels = maps.Clone(labels)
	labels[key] = value
	return labels
}

func (m *mesh) namespace(i int) object {
	out := m.aNamespace
	name(&out, "", m.shape.Namespace(i))
	return &out
}

func nodeName(i int) string {
	return fmt.Sprintf("ip-10-200-%d-%d.eu-west-1.compute.internal", i>>8, i&0xff)
}

func (m *mesh) node(i int) object {
	out := m.aNode
	name(&out, "", nodeName(i))
	out.Labels = with(out.Labels, corev1.LabelTopologyZone, fmt.Sprintf("eu-west-1%c", 'a'+i%3))
	return &out
}

func serviceName(i int) string { return fmt.Sprint("svc", i) }

func (m *mesh) service(i int) object {
	out := m.aService
	name(&out, m.shape.Namespace(i), serviceName(i))
	out.Labels = with(out.Labels, "app", out.Name)
	out.Spec.Selector = map[string]string{"app": out.Name}
	out.Spec.ClusterIP = fmt.Sprintf("10.96.%d.%d", i>>8, i&0xff)
	out.Spec.ClusterIPs = []string{out.Spec.ClusterIP}
	return &out
}

// pod is a Pod: one endpoint of a service.
type pod struct {
	service, endpoint int
	ip                string
	ready             bool
}

// podAt is what an endpoint of a service is before any change.
func (m *mesh) podAt(service, endpoint int) pod {
	return pod{service, endpoint, m.shape.EndpointIP(service, endpoint), true}
}

func (p pod) name() string { return serviceName(p.service) + "-6b7f9c8d5-" + p.ip }

func (p pod) node() string { return nodeName((p.service + 101*p.endpoint) % Nodes) }

func (m *mesh) pod(p pod) object {
	out := m.aPod
	name(&out, m.shape.Namespace(p.service), p.name())
	out.Labels = with(out.Labels, "app", serviceName(p.service))
	out.Labels = with(out.Labels, "version", fmt.Sprintf("v%d", p.service%2+1))
	out.OwnerReferences = slices.Clone(out.OwnerReferences)
	out.OwnerReferences[0].Name = serviceName(p.service) + "-6b7f9c8d5"
	out.Spec.NodeName = p.node()
	out.Spec.ServiceAccountName = m.shape.Account(p.service)
	out.Status.PodIP, out.Status.PodIPs = p.ip, []corev1.PodIP{{IP: p.ip}}
	if !p.ready {
		out.Status.Conditions = slices.Clone(out.Status.Conditions)
		out.Status.Conditions[0].Status = corev1.ConditionFalse
	}
	return &out
}

func (m *mesh) slice(service int, pods []pod) object {
	out := m.aSlice
	name(&out, m.shape.Namespace(service), serviceName(service)+"-x7k2p")
	out.Labels = with(out.Labels, "app", serviceName(service))
	out.Labels = with(out.Labels, discoveryv1.LabelServiceName, serviceName(service))
	for _, p := range pods {
		node, terminating := p.node(), false
		out.Endpoints = append(out.Endpoints, discoveryv1.Endpoint{
			Addresses: []string{p.ip}, NodeName: &node,
			Conditions: discoveryv1.EndpointConditions{Ready: &p.ready, Serving: &p.ready, Terminating: &terminating},
			TargetRef:  &corev1.ObjectReference{Kind: "Pod", Namespace: out.Namespace, Name: p.name()},
		})
	}
	return &out
}
