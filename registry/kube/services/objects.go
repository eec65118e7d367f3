package services

import (
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/ashore-mesh/ashore/registry"
	"github.com/ashore-mesh/ashore/registry/kube"
)

type key = registry.ObjectKey

// objects holds what is used of the objects of a cluster. Objects may arrive in any order. It has no
// I/O, and one goroutine uses it.
type objects struct {
	source  string        // immutable: the name of the source
	options *kube.Options // immutable

	services   map[key]*service
	slices     map[key]*slice
	pods       map[key]*pod
	nodes      map[string]registry.Locality
	namespaces map[string]namespace

	changed map[key]struct{} // the services to convert again
	shared  workload
}

// service is a Service and its EndpointSlices, either of which may be missing.
type service struct {
	object *corev1.Service
	slices []*slice // sorted by name
	latest content  // as of the last convert
}

func newObjects(c *kube.Cluster) *objects {
	return &objects{
		source: c.Name, options: &c.Options,
		services: map[key]*service{}, slices: map[key]*slice{}, pods: map[key]*pod{},
		nodes: map[string]registry.Locality{}, namespaces: map[string]namespace{}, changed: map[key]struct{}{},
	}
}

// set adds an object, or replaces it.
func (o *objects) set(object any) {
	switch x := object.(type) {
	case *corev1.Service:
		o.setService(key{Namespace: x.Namespace, Name: x.Name}, x)
	case *discoveryv1.EndpointSlice:
		s := newSlice(x)
		o.setSlice(s.key, s)
	case *corev1.Pod:
		o.setPod(key{Namespace: x.Namespace, Name: x.Name}, x)
	case *corev1.Node:
		o.setNode(x.Name, localityOf(x))
	case *corev1.Namespace:
		o.setNamespace(x.Name, newNamespace(x))
	}
}

// delete removes an object.
func (o *objects) delete(object any) {
	switch x := object.(type) {
	case *corev1.Service:
		o.setService(key{Namespace: x.Namespace, Name: x.Name}, nil)
	case *discoveryv1.EndpointSlice:
		o.setSlice(key{Namespace: x.Namespace, Name: x.Name}, nil)
	case *corev1.Pod:
		o.setPod(key{Namespace: x.Namespace, Name: x.Name}, nil)
	case *corev1.Node:
		o.setNode(x.Name, registry.Locality{})
	case *corev1.Namespace:
		o.setNamespace(x.Name, namespace{})
	}
}

// replaceAll replaces all objects of one kind. old are those of that kind, and remove removes one.
func replaceAll[K comparable, V any, T runtime.Object](o *objects, old map[K]V, keyOf func(T) K, remove func(K),
	all []T) {
	listed := make(map[K]struct{}, len(all))
	for _, object := range all {
		listed[keyOf(object)] = struct{}{}
		o.set(object)
	}
	for k := range old {
		if _, ok := listed[k]; !ok {
			remove(k)
		}
	}
}

// setService sets the Service, or removes it if object is nil.
func (o *objects) setService(k key, object *corev1.Service) {
	s := o.service(k)
	s.object = object
	o.changed[k] = struct{}{}
}

// service returns the service with a key. It adds one if there is none; see dropUnused.
func (o *objects) service(k key) *service {
	s := o.services[k]
	if s == nil {
		s = &service{}
		o.services[k] = s
	}
	return s
}

// setSlice sets an EndpointSlice, or removes it if current is nil.
func (o *objects) setSlice(k key, current *slice) {
	previous := o.slices[k]
	if previous.equal(current) {
		return
	}
	if previous != nil {
		delete(o.slices, k)
		s := o.service(previous.service)
		s.slices = slices.DeleteFunc(s.slices, func(other *slice) bool { return other == previous })
		o.linkPods(previous, false)
		o.changed[previous.service] = struct{}{}
	}
	if current != nil && current.service.Name != "" {
		o.slices[k] = current
		s := o.service(current.service)
		s.slices = append(s.slices, current)
		slices.SortFunc(s.slices, func(a, b *slice) int { return a.key.Compare(b.key) })
		o.linkPods(current, true)
		o.changed[current.service] = struct{}{}
	}
}

// linkPods adds an EndpointSlice to those of its Pods, or removes it.
func (o *objects) linkPods(s *slice, add bool) {
	for _, e := range s.endpoints {
		if e.pod == "" {
			continue
		}
		k := key{Namespace: s.key.Namespace, Name: e.pod}
		p := o.pod(k)
		p.slices = slices.DeleteFunc(p.slices, func(other *slice) bool { return other == s })
		if add {
			p.slices = append(p.slices, s)
		}
		o.dropPod(k)
	}
}

// pod returns the Pod with a key. It adds one if there is none; see dropPod.
func (o *objects) pod(k key) *pod {
	p := o.pods[k]
	if p == nil {
		p = &pod{}
		o.pods[k] = p
	}
	return p
}

// dropPod removes a Pod that does not exist and that no EndpointSlice names.
func (o *objects) dropPod(k key) {
	if p := o.pods[k]; p.endpoint == nil && len(p.slices) == 0 {
		delete(o.pods, k)
	}
}

// setPod sets a Pod, or removes it if object is nil.
func (o *objects) setPod(k key, object *corev1.Pod) {
	p := o.pod(k)
	if object == nil {
		p.node, p.addresses = "", nil
		o.setEndpoint(k, p, nil)
		o.dropPod(k)
		return
	}
	addresses := addressesOf(object)
	moved := !slices.Equal(p.addresses, addresses)
	p.node, p.addresses = object.Spec.NodeName, addresses
	ep := o.newEndpoint(object)
	o.setEndpoint(k, p, &ep)
	if moved {
		o.markPod(p)
	}
}

// setEndpoint sets the endpoint of a Pod. Its health is of interest only to those who select Pods.
func (o *objects) setEndpoint(k key, p *pod, ep *registry.Endpoint) {
	previous := p.endpoint
	if previous != nil && ep != nil && previous.Equal(ep) {
		return
	}
	p.endpoint = ep
	if ep == nil || ep.Address == "" {
		o.shared.pods = o.shared.pods.Without(k)
	} else {
		o.shared.pods = o.shared.pods.With(k, ep)
	}
	if previous != nil && ep != nil {
		same := *previous
		if same.Health = ep.Health; same.Equal(ep) {
			return
		}
	}
	o.markPod(p)
}

// markPod marks the services of a Pod as changed.
func (o *objects) markPod(p *pod) {
	for _, s := range p.slices {
		o.changed[s.service] = struct{}{}
	}
}

// setNode sets the locality of a Node.
func (o *objects) setNode(name string, l registry.Locality) {
	if o.nodes[name] == l {
		return
	}
	if o.nodes[name] = l; l == (registry.Locality{}) {
		delete(o.nodes, name)
	}
	o.placePods(func(p *pod) bool { return p.node == name })
}

// setNamespace sets what is used of a Namespace.
func (o *objects) setNamespace(name string, n namespace) {
	previous := o.namespaces[name]
	if previous == n {
		return
	}
	if o.namespaces[name] = n; n == (namespace{}) {
		delete(o.namespaces, name)
	}
	if previous.network != n.network && name == o.options.Namespace {
		o.placePods(func(*pod) bool { return true })
		for k := range o.services { // they may have endpoints without a Pod
			o.changed[k] = struct{}{}
		}
	}
	if previous.distribution != n.distribution {
		for k := range o.services {
			if k.Namespace == name {
				o.changed[k] = struct{}{}
			}
		}
	}
}

// placePods sets the locality and network of some Pods again.
func (o *objects) placePods(which func(*pod) bool) {
	for k, p := range o.pods {
		if p.endpoint != nil && which(p) {
			ep := *p.endpoint
			o.place(&ep, p.node)
			o.setEndpoint(k, p, &ep)
		}
	}
}

// convert converts the services that changed since the last call, and returns their keys.
func (o *objects) convert() (changed []key) {
	for k := range o.changed {
		s := o.services[k]
		current := o.content(k, s).keep(s.latest)
		if !current.equal(s.latest) {
			changed = append(changed, k)
			s.latest = current
		}
		if current.selector != nil {
			o.shared.selectors = o.shared.selectors.With(k, current.selector)
		} else {
			o.shared.selectors = o.shared.selectors.Without(k)
		}
		if s.object == nil && len(s.slices) == 0 {
			delete(o.services, k)
		}
	}
	clear(o.changed)
	return changed
}

// all returns the keys of all services that have content.
func (o *objects) all() (out []key) {
	for k := range maps.Keys(o.services) {
		if len(o.services[k].latest.instances) > 0 {
			out = append(out, k)
		}
	}
	return out
}
