package push

import (
	"cmp"
	"slices"

	mesh "istio.io/api/mesh/v1alpha1"

	"github.com/ashore-mesh/ashore/config"
)

// Mesh holds the mesh-wide settings. Immutable: the pointer is the version.
type Mesh struct {
	// Config is Istio's MeshConfig with its defaults. It is never nil.
	Config *mesh.MeshConfig
	// Domain is the suffix of short host names: "web" in namespace shop is web.shop.svc.<Domain>.
	Domain string
	// Networks holds the networks of the mesh. Nil: all endpoints are reached by their own addresses.
	Networks *Networks
}

// TrustDomain returns the trust domain of the mesh. The default is cluster.local, as in Istio.
func (m *Mesh) TrustDomain() string { return cmp.Or(m.Config.GetTrustDomain(), "cluster.local") }

// Cluster returns the cluster ID of the mesh in metrics. The default is the trust domain.
func (m *Mesh) Cluster() string {
	return cmp.Or(m.Config.GetDefaultConfig().GetProxyMetadata()[config.ClusterVariable], m.TrustDomain())
}

// TrustDomains returns the trust domain of the mesh, then its aliases, each once.
func (m *Mesh) TrustDomains() []string {
	out := []string{m.TrustDomain()}
	for _, d := range m.Config.GetTrustDomainAliases() {
		if !slices.Contains(out, d) {
			out = append(out, d)
		}
	}
	return out
}
