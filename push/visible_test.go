package push

import (
	"testing"
	"time"

	"github.com/ashore-mesh/ashore/config"
	"github.com/ashore-mesh/ashore/registry"
)

// A host of several namespaces is in the client's own, or else where it is declared, the oldest of
// those.
func TestVisibleByAge(t *testing.T) {
	t.Parallel()
	in := serviceViewIn{mesh: &Mesh{Config: config.DefaultMesh(), Domain: "cluster.local"}}
	for namespace, s := range map[string]registry.Service{"a": {Relayed: true}, "b": {Created: time.Unix(2, 0)},
		"c": {Created: time.Unix(1, 0)}} {
		s.Key = registry.Key{Host: "web", Namespace: namespace}
		in.services = in.services.With(s.Key, &s)
	}
	v := newServiceView(in)
	for client, want := range map[string]string{"a": "a", "b": "b", "c": "c", "d": "c"} {
		if got := v.find(client, "web"); got.Namespace != want {
			t.Errorf("in namespace %s it is that of %s, want %s", client, got.Namespace, want)
		}
		if got := v.visible(client); len(got) != 1 || got[0].Namespace != want {
			t.Errorf("in namespace %s they are %v, want that of %s", client, got, want)
		}
	}
}

// Of a host that configuration declares for some, and registries have for all, those see the
// declaration, however young it is.
func TestVisibleDeclared(t *testing.T) {
	t.Parallel()
	in := serviceViewIn{mesh: &Mesh{Config: config.DefaultMesh(), Domain: "cluster.local"}}
	for namespace, s := range map[string]registry.Service{
		"shop": {Object: "Consul service web"}, "z": {Declared: true, Created: time.Unix(1, 0), ExportTo: []string{".", "a"}},
	} {
		s.Key = registry.Key{Host: "web", Namespace: namespace}
		in.services = in.services.With(s.Key, &s)
	}
	v := newServiceView(in)
	for client, want := range map[string]string{"shop": "shop", "z": "z", "a": "z", "b": "shop"} {
		if got := v.find(client, "web"); got.Namespace != want {
			t.Errorf("in namespace %s it is that of %s, want %s", client, got.Namespace, want)
		}
		if got := v.visible(client); len(got) != 1 || got[0].Namespace != want {
			t.Errorf("in namespace %s they are %v, want that of %s", client, got, want)
		}
	}
}
