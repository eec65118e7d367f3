package config

import (
	"maps"
	"slices"

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
		i := slices.IndexFunc(seen, func(labels map[string]string) bool { return maps.Equal(labels, ep.Labels) })
		switch {
		case i >= 0:
			ep.Labels = seen[i]
		case len(seen) < manyLabels:
			seen = append(seen, ep.Labels)
		}
	}
}
