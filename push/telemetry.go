package push

import (
	"fmt"
	"slices"

	mesh "istio.io/api/mesh/v1alpha1"
	security "istio.io/api/security/v1beta1"
	telemetry "istio.io/api/telemetry/v1alpha1"

	"github.com/ashore-mesh/ashore/config"
	"github.com/ashore-mesh/ashore/internal/intern"
)

// providersFor returns the extension providers that a proxy may call: the one that its policies
// name, and those of its telemetry.
func (c *Context) providersFor(f Facets) *intern.List[*mesh.MeshConfig_ExtensionProvider] {
	m := c.in.Mesh.Config
	names := slices.Concat(m.GetDefaultProviders().GetAccessLogging(), m.GetDefaultProviders().GetTracing())
	if p := AskedProvider(m, f.AuthorizationPolicy); p != nil {
		names = append(names, p.Name)
	}
	for _, o := range f.Telemetry.Items() {
		for _, r := range ProviderReferences(o) {
			names = append(names, r.Name)
		}
	}
	var out []*mesh.MeshConfig_ExtensionProvider
	for _, p := range m.GetExtensionProviders() {
		if slices.Contains(names, p.GetName()) {
			out = append(out, p)
		}
	}
	return c.tables.providers.Of(out)
}

// ProviderReference is an extension provider that an object names.
type ProviderReference struct {
	// Name is the provider's, Field the path of the name.
	Name, Field string
	// Signal is what the provider is to receive.
	Signal config.Signal
}

// ProviderReferences returns the extension providers that a Telemetry or an AuthorizationPolicy
// names.
func ProviderReferences(o *config.Object) (out []ProviderReference) {
	if p, ok := o.Spec.(*security.AuthorizationPolicy); ok {
		if p.Action != security.AuthorizationPolicy_CUSTOM {
			return nil
		}
		return []ProviderReference{{p.GetProvider().GetName(), "spec.provider.name", config.Requests}}
	}
	add := func(field string, entry int, signal config.Signal, refs []*telemetry.ProviderRef) {
		for i, r := range refs {
			path := fmt.Sprintf("spec.%s[%d].providers[%d].name", field, entry, i)
			out = append(out, ProviderReference{r.Name, path, signal})
		}
	}
	spec := o.Spec.(*telemetry.Telemetry)
	for i, e := range spec.Metrics {
		add("metrics", i, config.Metrics, e.Providers)
	}
	for i, e := range spec.AccessLogging {
		add("accessLogging", i, config.AccessLogs, e.Providers)
	}
	for i, e := range spec.Tracing {
		add("tracing", i, config.Spans, e.Providers)
	}
	return out
}
