package services

import (
	"cmp"
	"reflect"
	"slices"

	discoveryv1 "k8s.io/api/discovery/v1"

	"github.com/ashore-mesh/ashore/registry"
)

// slice is what is used of an EndpointSlice. Immutable.
type slice struct {
	key, service key // service has an empty name if the EndpointSlice is not of a Service
	family       discoveryv1.AddressType
	ports        map[string]uint32
	endpoints    []sliceEndpoint
}

// sliceEndpoint is one endpoint of an EndpointSlice.
type sliceEndpoint struct {
	address string
	pod     string // the Pod in the same namespace, or empty
	health  registry.Health
}

func newSlice(s *discoveryv1.EndpointSlice) *slice {
	out := &slice{
		key:     key{Namespace: s.Namespace, Name: s.Name},
		service: key{Namespace: s.Namespace, Name: s.Labels[discoveryv1.LabelServiceName]},
		family:  s.AddressType,
		ports:   map[string]uint32{},
	}
	for _, p := range s.Ports {
		if n, ok := portNumber(deref(p.Port)); ok && isTCP(deref(p.Protocol)) {
			out.ports[deref(p.Name)] = n
		}
	}
	for _, e := range s.Endpoints {
		if len(e.Addresses) == 0 { // consumers use the first of several
			continue
		}
		address, ok := canonical(e.Addresses[0])
		if !ok { // an FQDN, which Istio does not support either
			continue
		}
		one := sliceEndpoint{address: address, health: healthOf(e.Conditions)}
		if ref := e.TargetRef; ref != nil && ref.Kind == "Pod" && cmp.Or(ref.Namespace, s.Namespace) == s.Namespace {
			one.pod = ref.Name
		}
		out.endpoints = append(out.endpoints, one)
	}
	slices.SortFunc(out.endpoints, func(a, b sliceEndpoint) int {
		return cmp.Or(cmp.Compare(a.address, b.address), cmp.Compare(a.pod, b.pod), cmp.Compare(a.health, b.health))
	})
	return out
}

// healthOf returns the health of an endpoint. Ready is unknown in EndpointSlices that a person
// wrote, which means yes. Source: Kubernetes, EndpointConditions.
func healthOf(c discoveryv1.EndpointConditions) registry.Health {
	serving := c.Serving == nil || *c.Serving
	switch {
	case c.Ready == nil || *c.Ready:
		return registry.Healthy
	case serving && deref(c.Terminating):
		return registry.Draining
	}
	return registry.Unhealthy
}

func (s *slice) equal(o *slice) bool {
	return s == o || s != nil && o != nil && reflect.DeepEqual(s, o)
}
