package gen

import (
	"unique"

	"github.com/ashore-mesh/ashore/internal/memo"
	"github.com/ashore-mesh/ashore/push"
	"github.com/ashore-mesh/ashore/xds/resource"
)

// ProbeType is how the readiness probe of a WorkloadGroup reaches the agents of its workloads: Istio's own message, which a
// proxy of Istio never asks for. Source: istio.io, WorkloadGroup, ReadinessProbe.
const ProbeType = "type.googleapis.com/istio.networking.v1alpha3.ReadinessProbe"

// ProbeName is the name of the one resource of type ProbeType.
const ProbeName = "readiness-probe"

// probes makes the resource that holds the probe of a workload's group.
type probes struct {
	layers *memo.Func[probeIn, resource.Layer]
}

// probeIn is everything that the resource depends on.
type probeIn struct{ encoded unique.Handle[string] }

func newProbes() probes { return probes{memo.New(buildProbe)} }

// set is empty for who did not register from a group. A group without a probe has an empty one: so an agent can tell it from a
// control plane that does not know.
func (p probes) set(sc *push.Scope) resource.Set {
	if sc.Probe == (unique.Handle[string]{}) {
		return resource.Set{}
	}
	return resource.Set{Shared: p.layers.Get(probeIn{sc.Probe})}
}

func buildProbe(in probeIn) *resource.Layer {
	r := resource.New(ProbeType, ProbeName, nil, func() []byte { return []byte(in.encoded.Value()) })
	return resource.NewLayer([]*resource.Resource{r})
}
