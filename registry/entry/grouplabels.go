package entry

import (
	networking "istio.io/api/networking/v1alpha3"

	"github.com/ashore-mesh/ashore/registry"
)

// GroupLabels are the labels of a workload of a group whose proxy has labels of its own: the same as its endpoint's.
func GroupLabels(g *networking.WorkloadGroup, own map[string]string) map[string]string {
	return registeredLabels(&registry.Registration{Labels: own}, g)
}
