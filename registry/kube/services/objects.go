package services

import (
	"slices"

	corev1 "k8s.io/api/core/v1"

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
	slicesOf   map[key][]*slice // by each of their Pods
	nodes      map[string]registry.Locality
	namespaces map[string]namespace

	changed   map[key]struct{}    // the services to convert again
	moved     map[string]struct{} // the Nodes whose Pods have to be placed again
	selection selection
}

// service is a Service and its EndpointSlices, either of which may be missing.
type service struct {
	object *corev1.Service
	slices []*slice    // sorted by name
	mesh   meshService // as of the last convert
}

func newObjects(c *kube.Cluster) *objects {
	return &objects{
		source: c.Name, options: &c.Options,
		services: map[key]*service{}, slices: map[key]*slice{}, pods: map[key]*pod{}, slicesOf: map[key][]*slice{},
		nodes: map[string]registry.Locality{}, namespaces: map[string]namespace{}, changed: map[key]struct{}{},
		moved: map[string]struct{}{},
	}
}

// unless returns v, or the zero value if deleted is set.
func unless[T any](deleted bool, v T) (out T) {
	if !deleted {
		out = v
	}
	return out
}

// put sets an entry of a map, or removes it if v is the zero value.
func put[K, V comparable](m map[K]V, k K, v V) {
	var zero V
	if m[k] = v; v == zero {
		delete(m, k)
	}
}

// service returns the service with a key. It adds one if there is none; see convert.
func (o *objects) service(k key) *service {
	s := o.services[k]
	if s == nil {
		s = &service{}
		o.services[k] = s
	}
	return s
}

// The methods set… add or replace an object. If it was deleted, they remove it.

func (o *objects) setService(x *corev1.Service, deleted bool) {
	k := key{Namespace: x.Namespace, Name: x.Name}
	o.service(k).object = unless(deleted, x)
	o.changed[k] = struct{}{}
}

func (o *objects) setSlice(x *slice, deleted bool) {
	k, current := x.key, unless(deleted || x.service.Name == "", x)
	previous := o.slices[k]
	if previous.equal(current) {
		return
	}
	put(o.slices, k, current)
	for _, s := range []*slice{previous, current} {
		if s == nil {
			continue
		}
		svc := o.service(s.service)
		svc.slices = slices.DeleteFunc(svc.slices, func(other *slice) bool { return other == s })
		if s == current {
			svc.slices = append(svc.slices, s)
			slices.SortFunc(svc.slices, func(a, b *slice) int { return a.key.Compare(b.key) })
		}
		o.linkPods(s, s == current)
		o.changed[s.service] = struct{}{}
	}
}

// linkPods adds an EndpointSlice to those of its Pods, or removes it.
func (o *objects) linkPods(s *slice, add bool) {
	for _, e := range s.endpoints {
		if e.pod == "" {
			continue
		}
		k := key{Namespace: s.key.Namespace, Name: e.pod}
		list := slices.DeleteFunc(o.slicesOf[k], func(other *slice) bool { return other == s })
		if add {
			list = append(list, s)
		}
		if o.slicesOf[k] = list; len(list) == 0 {
			delete(o.slicesOf, k)
		}
	}
}

// setPod also places the Pod. Its services do not depend on its health, which is for those who select
// Pods.
func (o *objects) setPod(x *pod, deleted bool) {
	o.place(&x.endpoint, x.node)
	k, current := x.key, unless(deleted, x)
	previous := o.pods[k]
	if previous.equal(current) {
		return
	}
	put(o.pods, k, current)
	if current == nil || len(current.addresses) == 0 {
		o.selection.pods = o.selection.pods.Without(k)
	} else {
		o.selection.pods = o.selection.pods.With(k, &current.endpoint)
	}
	if previous != nil && current != nil {
		same := *previous
		if same.endpoint.Health = current.endpoint.Health; same.equal(current) {
			return
		}
	}
	for _, s := range o.slicesOf[k] {
		o.changed[s.service] = struct{}{}
	}
}

func (o *objects) setNode(x named[registry.Locality], deleted bool) {
	if l := unless(deleted, x.value); o.nodes[x.name] != l {
		put(o.nodes, x.name, l)
		o.moved[x.name] = struct{}{}
	}
}

func (o *objects) setNamespace(x named[namespace], deleted bool) {
	name, n := x.name, unless(deleted, x.value)
	previous := o.namespaces[name]
	if previous == n {
		return
	}
	put(o.namespaces, name, n)
	if previous.network != n.network && name == o.options.Namespace {
		o.placePods(func(*pod) bool { return true })
	}
	for k := range o.services {
		if k.Namespace == name || name == o.options.Namespace {
			o.changed[k] = struct{}{}
		}
	}
}

// placePods sets the locality and network of some Pods again.
func (o *objects) placePods(which func(*pod) bool) {
	for _, p := range o.pods {
		if which(p) {
			moved := *p
			o.setPod(&moved, false)
		}
	}
}

// convert converts the services that changed since the last call, and returns the keys of those that
// are different in the mesh.
func (o *objects) convert() (changed []key) {
	if len(o.moved) > 0 {
		o.placePods(func(p *pod) bool {
			_, moved := o.moved[p.node]
			return moved
		})
		clear(o.moved)
	}
	for k := range o.changed {
		s := o.service(k)
		previous := s.mesh
		current := o.meshService(k, s).keep(previous)
		if s.mesh = current; !current.equal(previous) {
			changed = append(changed, k)
		}
		if current.selector == nil && previous.selector != nil {
			o.selection.selectors = o.selection.selectors.Without(k)
		} else if current.selector != previous.selector {
			o.selection.selectors = o.selection.selectors.With(k, current.selector)
		}
		if s.object == nil && len(s.slices) == 0 {
			delete(o.services, k)
		}
	}
	o.changed = map[key]struct{}{} // a map that was large stays slow to iterate
	return changed
}

// used returns the keys of the services that are in the mesh.
func (o *objects) used() map[key]struct{} {
	out := make(map[key]struct{}, len(o.services))
	for k, s := range o.services {
		if len(s.mesh.instances) > 0 {
			out[k] = struct{}{}
		}
	}
	return out
}
