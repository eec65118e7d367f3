package push

import (
	networking "istio.io/api/networking/v1alpha3"

	"github.com/ashore-mesh/ashore/config"
	"github.com/ashore-mesh/ashore/registry"
)

// emptyServices warns of declarations without endpoints and without a selector of workloads whose hosts no registry gives endpoints
// either. What other control planes' registries know is no declaration, and has none while nothing may be sent to what they know.
func (d *dangling) emptyServices() {
	for key, s := range d.context.in.Services.All() {
		if s.Resolution != registry.Static || s.Relayed || d.context.in.Endpoints.At(key).Len() > 0 {
			continue
		}
		o := d.context.in.Objects.At(config.ParseKey(s.Object))
		if o == nil {
			continue
		}
		if se, ok := o.Spec.(*networking.ServiceEntry); ok && len(se.Endpoints) == 0 && se.WorkloadSelector == nil {
			d.warn(o.Key, "spec", "%s has no endpoints, and no registry has any of it: requests to it fail; write endpoints or workloadSelector, or register instances of it", s.Host)
		}
	}
}
