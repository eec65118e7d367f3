package config

import (
	"maps"

	networking "istio.io/api/networking/v1alpha3"
)

// manyLabels bounds how many different sets of labels shareLabels looks for in one object.
const manyLabels = 16

// shareLabels makes equal labels of a ServiceEntry's endpoints one map: fifty endpoints of two
// versions need two, and maps are most of what such an object weighs.
func shareLabels(o *Object) {
	s, ok := o.Spec.(*networking.ServiceEntry)
	if !ok {
		return
	}
	var seen []map[string]string
	for _, ep := range s.Endpoints {
		if len(ep.GetLabels()) > 0 {
			ep.Labels, seen = oneOf(ep.Labels, seen)
		}
	}
}

// oneOf returns the map of seen that equals m, or m itself, which it adds while there is room.
func oneOf(m map[string]string, seen []map[string]string) (map[string]string, []map[string]string) {
	for _, s := range seen {
		if maps.Equal(s, m) {
			return s, seen
		}
	}
	if len(seen) < manyLabels {
		seen = append(seen, m)
	}
	return m, seen
}
