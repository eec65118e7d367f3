package registry

import (
	"maps"
	"reflect"
	"slices"
)

// Merge makes one of what several suppliers say of one service, the deciding one first: its Service
// counts, and the endpoints of all whose addresses are found in the same way stand side by side.
func Merge(parts []Instances) Instances {
	if len(parts) == 1 {
		return parts[0]
	}
	out := parts[0]
	var all []Endpoint
	for _, p := range parts {
		if p.Service.Resolution == out.Service.Resolution {
			all = append(all, p.Endpoints.All()...)
		}
	}
	if len(all) != out.Endpoints.Len() {
		out.Endpoints = &EndpointList{Items: all}
	}
	return out
}

// Keep returns now, with the pointers of old where the contents are equal.
func Keep(old, now Instances) Instances {
	if old.Service.Equal(now.Service) {
		now.Service = old.Service
	}
	if old.Endpoints.Equal(now.Endpoints) {
		now.Endpoints = old.Endpoints
	}
	return now
}

// Equal says whether two services are the same in all respects.
func (s *Service) Equal(o *Service) bool {
	return s == o || s != nil && o != nil && reflect.DeepEqual(s, o)
}

// All are the endpoints, not to be changed; of a nil list, none.
func (l *EndpointList) All() []Endpoint {
	if l == nil {
		return nil
	}
	return l.Items
}

// Equal says whether two lists hold the same endpoints in the same order.
func (l *EndpointList) Equal(o *EndpointList) bool {
	return l == o || l != nil && o != nil && slices.EqualFunc(l.Items, o.Items, func(a, b Endpoint) bool { return a.equal(&b) })
}

func (e *Endpoint) equal(o *Endpoint) bool {
	return e.Address == o.Address && e.Locality == o.Locality && e.Network == o.Network && e.Weight == o.Weight &&
		e.ServiceAccount == o.ServiceAccount && e.Namespace == o.Namespace && e.Workload == o.Workload &&
		e.TLSMode == o.TLSMode && e.Health == o.Health && maps.Equal(e.Ports, o.Ports) && maps.Equal(e.Labels, o.Labels)
}
