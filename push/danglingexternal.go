package push

import (
	"strings"

	"github.com/ashore-mesh/ashore/config"
	"github.com/ashore-mesh/ashore/registry"
)

// externalWorkloads warns of services whose workloads have identities that no client asks for, because the services are
// declared to be outside of the mesh, which is what a ServiceEntry that says nothing declares.
// Source: istio.io, ServiceEntry.location; automatic mutual TLS is for services inside.
func (d *dangling) externalWorkloads() {
	if !d.context.in.Mesh.Config.GetEnableAutoMtls().GetValue() {
		return
	}
	for key, ids := range d.context.identities.byService.All() {
		s := d.context.in.Services.At(key)
		if ids.MutualTLS && s != nil && s.External && !d.saysHow(s) {
			d.externalService(s)
		}
	}
}

// saysHow says whether a rule tells clients of the service's own namespace how to speak to it.
func (d *dangling) saysHow(s *registry.Service) bool {
	rule := d.rules.find(s.Namespace, s)
	return rule != nil && rule.Spec.GetTrafficPolicy().GetTls() != nil
}

func (d *dangling) externalService(s *registry.Service) {
	name, ok := strings.CutPrefix(s.Object, string(config.ServiceEntry)+" "+s.Namespace+"/")
	if !ok {
		return
	}
	d.warn(config.Key{Kind: config.ServiceEntry, Namespace: s.Namespace, Name: name}, "spec.location",
		"workloads of %s take the mesh's mutual TLS, but clients speak plaintext to them, because the service is outside of the mesh (MESH_EXTERNAL, the default): "+
			"write location: MESH_INTERNAL, or a DestinationRule with the tls mode that is meant", s.Host)
}
