package push

import (
	"slices"

	mesh "istio.io/api/mesh/v1alpha1"
	security "istio.io/api/security/v1beta1"

	"github.com/ashore-mesh/ashore/config"
)

// provider tells of a CUSTOM policy that can ask nobody, so that what it matches is refused.
func (d *dangling) provider(o *config.Object) {
	spec, ok := o.Spec.(*security.AuthorizationPolicy)
	if !ok || spec.Action != security.AuthorizationPolicy_CUSTOM {
		return
	}
	const refused = ", so what this policy matches is refused: "
	name := spec.GetProvider().GetName()
	all := d.context.in.Mesh.Config.GetExtensionProviders()
	i := slices.IndexFunc(all, func(p *mesh.MeshConfig_ExtensionProvider) bool { return p.GetName() == name })
	if i < 0 {
		d.warn(o.Key, "spec.provider.name", "the mesh has no extension provider %q"+refused+"add it to mesh.extensionProviders of the settings", name)
		return
	}
	namespace, host, port := ProviderService(all[i])
	if host == "" {
		d.warn(o.Key, "spec.provider.name", "the extension provider %q is none of external authorization"+refused+"name one with envoyExtAuthzHttp or envoyExtAuthzGrpc", name)
		return
	}
	for key, s := range d.context.in.Services.All() {
		if key.Host != host || namespace != "" && key.Namespace != namespace {
			continue
		}
		for _, p := range s.Ports {
			if p.Number == port {
				return
			}
		}
	}
	d.warn(o.Key, "spec.provider.name", "there is no service %s with port %d, where the extension provider %q is asked"+refused+"declare it", host, port, name)
}
