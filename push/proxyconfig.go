package push

import (
	"slices"
	"unique"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	mesh "istio.io/api/mesh/v1alpha1"
	networking "istio.io/api/networking/v1beta1"

	"github.com/ashore-mesh/ashore/config"
	"github.com/ashore-mesh/ashore/internal/intern"
)

// byLevel returns the objects of a kind that apply to a proxy: of the mesh, of its namespace and of
// its labels, in this order, at most one of each. Of several objects for one level, the oldest
// applies. Objects with a selector apply in their own namespace only.
// Source: istio.io, Telemetry and ProxyConfig.
func (c *Context) byLevel(kind config.Kind, n Node) *intern.List[*config.Object] {
	root := c.in.Mesh.Config.GetRootNamespace()
	var levels [3]*config.Object
	for _, o := range c.policiesFor(kind, n).Items() {
		level := 0
		switch {
		case len(SelectorLabels(o)) > 0 && o.Namespace == n.Namespace:
			level = 2
		case len(SelectorLabels(o)) > 0:
			continue
		case o.Namespace != root:
			level = 1
		}
		if levels[level] == nil {
			levels[level] = o
		}
	}
	return c.tables.objects.Of(slices.DeleteFunc(levels[:], func(o *config.Object) bool { return o == nil }))
}

// proxyConfigIn holds everything that the settings of a proxy depend on.
type proxyConfigIn struct {
	tables     *tables
	mesh       *Mesh
	annotation unique.Handle[string] // Node.ProxyConfig
	objects    *intern.List[*config.Object]
}

// proxySettings holds a merged ProxyConfig: what Envoy's resources depend on, and what the agent
// applies. Equal ones are one pointer. Nil if nothing is set.
type proxySettings struct{ traffic, process *mesh.ProxyConfig }

// settingsFor returns Facets.ProxyConfig and Facets.AgentConfig.
func (c *Context) settingsFor(n Node) *proxySettings {
	in := proxyConfigIn{c.tables, c.in.Mesh, n.ProxyConfig, c.byLevel(config.ProxyConfig, n)}
	return keep(&c.cache.proxyConfigs, c.tables.proxySettings, in)
}

// newProxySettings merges, each before those that take precedence: the mesh's defaultConfig, the
// ProxyConfigs of the mesh and of the namespace, the annotation, and the ProxyConfig that selects
// the proxy.
// Source: istio.io, ProxyConfig; Istio, pilot/pkg/model/proxy_config.go.
func newProxySettings(in proxyConfigIn) *proxySettings {
	merged := &mesh.ProxyConfig{}
	add := func(c *mesh.ProxyConfig) { replaceFields(merged.ProtoReflect(), c.ProtoReflect()) }
	add(in.mesh.Config.GetDefaultConfig())
	for _, selected := range []bool{false, true} {
		for _, o := range in.objects.Items() {
			if len(SelectorLabels(o)) > 0 == selected {
				spec := o.Spec.(*networking.ProxyConfig)
				add(&mesh.ProxyConfig{Concurrency: spec.Concurrency, ProxyMetadata: spec.EnvironmentVariables})
			}
		}
		if !selected && in.annotation != (unique.Handle[string]{}) {
			add(decodeProxyConfig(in.annotation.Value()))
		}
	}
	return &proxySettings{
		traffic: in.tables.proxyConfig(&mesh.ProxyConfig{Tracing: merged.Tracing, GatewayTopology: merged.GatewayTopology,
			ProxyHeaders: merged.ProxyHeaders, ConnectionSettings: merged.ConnectionSettings}),
		process: in.tables.proxyConfig(&mesh.ProxyConfig{Concurrency: merged.Concurrency, DrainDuration: merged.DrainDuration,
			TerminationDrainDuration: merged.TerminationDrainDuration, ProxyStatsMatcher: merged.ProxyStatsMatcher,
			ProxyMetadata: merged.ProxyMetadata}),
	}
}

// proxyConfig returns one pointer for equal messages, and nil for an empty one.
func (t *tables) proxyConfig(c *mesh.ProxyConfig) *mesh.ProxyConfig {
	encoded, err := proto.MarshalOptions{Deterministic: true}.Marshal(c)
	if err != nil {
		panic(err) // its parts were encoded once, or decoded
	}
	if len(encoded) == 0 {
		return nil
	}
	return t.proxyConfigs.Get(string(encoded))
}

// decodeProxyConfig decodes what this program encoded.
func decodeProxyConfig(encoded string) *mesh.ProxyConfig {
	c := &mesh.ProxyConfig{}
	if err := proto.Unmarshal([]byte(encoded), c); err != nil {
		panic(err)
	}
	return c
}

// replaceFields sets the fields of from in to. Maps are merged, and so are the fields of
// proxyHeaders. Source: Istio, pkg/config/mesh, MergeProxyConfig.
func replaceFields(to, from protoreflect.Message) {
	from.Range(func(fd protoreflect.FieldDescriptor, v protoreflect.Value) bool {
		switch {
		case fd.IsMap():
			entries := to.Mutable(fd).Map()
			v.Map().Range(func(k protoreflect.MapKey, v protoreflect.Value) bool {
				entries.Set(k, v)
				return true
			})
		case fd.Name() == "proxy_headers":
			replaceFields(to.Mutable(fd).Message(), v.Message())
		default:
			to.Set(fd, v)
		}
		return true
	})
}
