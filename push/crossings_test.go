package push

import mesh "istio.io/api/mesh/v1alpha1"

func emptyInputs() Inputs {
	return Inputs{Mesh: &Mesh{Config: &mesh.MeshConfig{RootNamespace: "root"}, Domain: "mesh"}}
}
