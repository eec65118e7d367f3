package apiserver

import (
	"crypto/sha256"
	"embed"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
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

type object interface {
	runtime.Object
	metav1.Object
}

// kind makes the objects of one kind by number.
type kind struct {
	list   runtime.Object // an empty list
	count  int
	object func(i int) object
}

// mesh makes the objects of a shape from templates.
type mesh struct {
	shape     fleet.Shape
	kinds     map[string]kind // by path
	endpoints []endpoint      // of all services, as many for each

	aPod       *corev1.Pod
	aNode      *corev1.Node
	aService   *corev1.Service
	aSlice     *discoveryv1.EndpointSlice
	aNamespace *corev1.Namespace
}

// endpoint is what changes of an endpoint of a service, which is a Pod.
type endpoint struct {
	ip    string
	ready bool
}

//go:embed templates/*.yaml
var templates embed.FS

// template reads a template.
func template[T any](name string) *T {
	t := new(T)
	b, err := templates.ReadFile("templates/" + name + ".yaml")
	if err == nil {
		err = yaml.UnmarshalStrict(b, t)
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
	for i := range shape.Services * shape.Endpoints {
		m.endpoints = append(m.endpoints, endpoint{shape.EndpointIP(i/shape.Endpoints, i%shape.Endpoints), true})
	}
	m.kinds = map[string]kind{
		nodes:                {&corev1.NodeList{}, Nodes, m.node},
		pods:                 {&corev1.PodList{}, len(m.endpoints), m.pod},
		endpointSlices:       {&discoveryv1.EndpointSliceList{}, shape.Services, m.slice},
		"/api/v1/services":   {&corev1.ServiceList{}, shape.Services, m.service},
		"/api/v1/namespaces": {&corev1.NamespaceList{}, shape.Namespaces, m.namespace},
	}
	return m
}

// name names an object.
func name(o object, namespace, name string) {
	o.SetNamespace(namespace)
	o.SetName(name)
	o.SetResourceVersion("1")
	o.SetUID(types.UID(fmt.Sprintf("%x", sha256.Sum256([]byte(namespace+"/"+name)))[:36]))
}

func (m *mesh) namespace(i int) object {
	out := m.aNamespace.DeepCopy()
	name(out, "", m.shape.Namespace(i))
	return out
}

func nodeName(i int) string {
	return fmt.Sprintf("ip-10-200-%d-%d.eu-west-1.compute.internal", i>>8, i&0xff)
}

func (m *mesh) node(i int) object {
	out := m.aNode.DeepCopy()
	name(out, "", nodeName(i))
	out.Labels[corev1.LabelTopologyZone] = fmt.Sprintf("eu-west-1%c", 'a'+i%3)
	return out
}

func serviceName(i int) string { return fmt.Sprint("svc", i) }

func (m *mesh) service(i int) object {
	out := m.aService.DeepCopy()
	name(out, m.shape.Namespace(i), serviceName(i))
	out.Labels["app"] = out.Name
	out.Spec.Selector = map[string]string{"app": out.Name}
	out.Spec.ClusterIP = fmt.Sprintf("10.96.%d.%d", i>>8, i&0xff)
	out.Spec.ClusterIPs = []string{out.Spec.ClusterIP}
	return out
}

// podName is the name and the node of the Pod that is endpoint i of all.
func (m *mesh) podName(i int) (name, node string) {
	service, number := i/m.shape.Endpoints, i%m.shape.Endpoints
	return serviceName(service) + "-6b7f9c8d5-" + m.endpoints[i].ip, nodeName((service + 101*number) % Nodes)
}

func (m *mesh) pod(i int) object {
	out, e, service := m.aPod.DeepCopy(), m.endpoints[i], i/m.shape.Endpoints
	podName, node := m.podName(i)
	name(out, m.shape.Namespace(service), podName)
	out.Labels["app"] = serviceName(service)
	out.Labels["version"] = fmt.Sprintf("v%d", service%2+1)
	out.OwnerReferences[0].Name = serviceName(service) + "-6b7f9c8d5"
	out.Spec.NodeName, out.Spec.ServiceAccountName = node, m.shape.Account(service)
	out.Status.PodIP, out.Status.PodIPs = e.ip, []corev1.PodIP{{IP: e.ip}}
	if !e.ready {
		out.Status.Conditions[0].Status = corev1.ConditionFalse
	}
	return out
}

func (m *mesh) slice(service int) object {
	out := m.aSlice.DeepCopy()
	name(out, m.shape.Namespace(service), serviceName(service)+"-x7k2p")
	out.Labels["app"] = serviceName(service)
	out.Labels[discoveryv1.LabelServiceName] = serviceName(service)
	for i := service * m.shape.Endpoints; i < (service+1)*m.shape.Endpoints; i++ {
		e := m.endpoints[i]
		pod, node := m.podName(i)
		out.Endpoints = append(out.Endpoints, discoveryv1.Endpoint{
			Addresses: []string{e.ip}, NodeName: &node,
			Conditions: discoveryv1.EndpointConditions{Ready: &e.ready, Serving: &e.ready, Terminating: new(bool)},
			TargetRef:  &corev1.ObjectReference{Kind: "Pod", Namespace: out.Namespace, Name: pod},
		})
	}
	return out
}
