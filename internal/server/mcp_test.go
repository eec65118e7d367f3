package server

import (
	"testing"

	"github.com/ashore-mesh/ashore/config"
	"github.com/ashore-mesh/ashore/internal/settings"
	"github.com/ashore-mesh/ashore/internal/spiffe"
	"github.com/ashore-mesh/ashore/push"
)

// Only identities of the root namespace of this mesh may ask istioctl's questions.
func TestRootNamespace(t *testing.T) {
	t.Parallel()
	s := &Server{cfg: settings.Config{MeshConfig: &push.Mesh{Config: config.DefaultMesh()}}}
	for id, want := range map[string]bool{
		"spiffe://cluster.local/ns/istio-system/sa/default": true,
		"spiffe://cluster.local/ns/shop/sa/default":         false,
		"spiffe://other.example/ns/istio-system/sa/default": false,
	} {
		parsed, err := spiffe.Parse(id)
		if err != nil {
			t.Fatal(err)
		}
		if got := s.inRootNamespace(parsed); got != want {
			t.Errorf("%s: got %t", id, got)
		}
	}
	if s.inRootNamespace(spiffe.ID{}) {
		t.Error("without an identity")
	}
}
