package push

import (
	"testing"

	mesh "istio.io/api/mesh/v1alpha1"

	"github.com/ashore-mesh/ashore/config"
	"github.com/ashore-mesh/ashore/registry"
)

// A router knows the service of the provider that its CUSTOM policies ask, whatever it routes.
func TestProviderIsKnown(t *testing.T) {
	t.Parallel()
	m := config.DefaultMesh()
	m.ExtensionProviders = []*mesh.MeshConfig_ExtensionProvider{{Name: "judge",
		Provider: &mesh.MeshConfig_ExtensionProvider_EnvoyExtAuthzHttp{
			EnvoyExtAuthzHttp: &mesh.MeshConfig_ExtensionProvider_EnvoyExternalAuthorizationHttpProvider{Service: "web.example", Port: 80},
		}}}
	in := Inputs{Mesh: &Mesh{Config: m, Domain: "cluster.local"}}
	key := registry.Key{Host: "web.example", Namespace: "shop"}
	in.Services = in.Services.With(key, &registry.Service{Key: key,
		Ports: []registry.Port{{Number: 80, Protocol: registry.HTTP}}})
	router := Node{Type: Router, Namespace: "shop"}
	without := Build(nil, in)
	if _, ok := without.Scope(without.Classify(router)).Destinations.Get(key.Host); ok {
		t.Error("a router knows a service that nothing names")
	}
	for _, o := range config.Parse("p.yaml", []byte(`
apiVersion: security.istio.io/v1
kind: AuthorizationPolicy
metadata: {name: c, namespace: shop}
spec: {action: CUSTOM, provider: {name: judge}, rules: [{}]}
`)).Objects {
		in.Objects = in.Objects.With(o.Key, o)
	}
	with := Build(nil, in)
	if _, ok := with.Scope(with.Classify(router)).Destinations.Get(key.Host); !ok {
		t.Error("the provider's service is not known")
	}
}
