package push

import (
	mesh "istio.io/api/mesh/v1alpha1"
)

// Mesh are the mesh-wide settings. Immutable: the pointer is the version.
type Mesh struct {
	// Config is Istio's MeshConfig with defaults filled in; never nil.
	Config *mesh.MeshConfig
	// Networks is Istio's MeshNetworks; nil when there are none.
	Networks *mesh.MeshNetworks
	// Domain is the suffix of short host names: "web" in namespace shop is web.shop.svc.<Domain>.
	Domain string
}
