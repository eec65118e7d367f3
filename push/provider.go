package push

import (
	"slices"
	"strings"

	mesh "istio.io/api/mesh/v1alpha1"
	security "istio.io/api/security/v1beta1"

	"github.com/ashore-mesh/ashore/config"
	"github.com/ashore-mesh/ashore/internal/intern"
	"github.com/ashore-mesh/ashore/registry"
)

// ProviderService returns the service of an extension provider. The host is empty if the provider
// has no service. The namespace is empty if the service may be in any namespace.
func ProviderService(p *mesh.MeshConfig_ExtensionProvider) (namespace, host string, port uint32) {
	m := p.ProtoReflect()
	kind := m.WhichOneof(m.Descriptor().Oneofs().ByName("provider"))
	if kind == nil {
		return "", "", 0
	}
	to, ok := m.Get(kind).Message().Interface().(interface {
		GetService() string
		GetPort() uint32
	})
	if !ok {
		return "", "", 0
	}
	if namespace, host, ok = strings.Cut(to.GetService(), "/"); !ok {
		namespace, host = "", to.GetService()
	}
	return namespace, host, to.GetPort()
}

// ProviderAddress returns the host and port of a provider's service, if the proxy knows the service.
func (sc *Scope) ProviderAddress(p *mesh.MeshConfig_ExtensionProvider) (host string, port uint32, ok bool) {
	namespace, host, port := ProviderService(p)
	d, known := sc.Destinations.Get(host)
	if !known || namespace != "" && d.Service.Namespace != namespace {
		return "", 0, false
	}
	_, ok = d.Service.Port(port)
	return host, port, ok
}

// AskedProvider returns the provider that the CUSTOM policies of a proxy name. It returns nil if
// there are no such policies, or if they name several providers or an unknown one.
func AskedProvider(m *mesh.MeshConfig, policies *intern.List[*config.Object]) *mesh.MeshConfig_ExtensionProvider {
	name := ""
	for _, o := range policies.Items() {
		spec, ok := o.Spec.(*security.AuthorizationPolicy)
		if !ok || spec.Action != security.AuthorizationPolicy_CUSTOM {
			continue
		}
		this := spec.GetProvider().GetName()
		if this == "" || name != "" && name != this {
			return nil
		}
		name = this
	}
	all := m.GetExtensionProviders()
	i := slices.IndexFunc(all, func(p *mesh.MeshConfig_ExtensionProvider) bool { return p.GetName() == name })
	if name == "" || i < 0 {
		return nil
	}
	return all[i]
}

// withProvider returns the services that a proxy calls with the service of a provider, even if the
// proxy's Sidecar does not import it. The list stays sorted by host.
func withProvider(all *visible, called []*registry.Service, p *mesh.MeshConfig_ExtensionProvider) []*registry.Service {
	_, host, _ := ProviderService(p)
	s := all.byHost[host]
	if s == nil {
		return called
	}
	byHost := func(s *registry.Service, host string) int { return strings.Compare(s.Host, host) }
	i, ok := slices.BinarySearchFunc(called, host, byHost)
	if ok {
		return called
	}
	return slices.Insert(slices.Clone(called), i, s)
}
