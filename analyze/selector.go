package analyze

import (
	"fmt"
	"slices"

	networking "istio.io/api/networking/v1alpha3"

	"github.com/ashore-mesh/ashore/config"
	"github.com/ashore-mesh/ashore/push"
)

// sameSelectors reports objects without effect, because an older one of the namespace has the same
// selector, or has none either.
func (a *analysis) sameSelectors() {
	for _, k := range []struct {
		kind               config.Kind
		general, selecting Code // empty: see overlaps
	}{
		{config.Sidecar, SeveralDefaultSidecar, ConflictingSidecars},
		{config.PeerAuthentication, ConflictingPeers, ConflictingPeers},
		{config.Telemetry, SeveralTelemetries, ""},
		{config.ProxyConfig, ConflictingProxies, ""},
	} {
		type selector struct{ namespace, labels string }
		groups := map[selector][]*config.Object{}
		for o := range a.objects(k.kind) {
			at := selector{o.Namespace, labelsKey(selectorOf(o))}
			groups[at] = append(groups[at], o)
		}
		for at, list := range groups {
			slices.SortFunc(list, push.CompareAge)
			for _, o := range list[1:] {
				switch {
				case at.labels == "":
					a.report(k.general, o, "spec",
						fmt.Sprintf("has no effect: %s is for all of namespace %s too and %s", named(list[0]), o.Namespace,
							precedence),
						"merge the two objects, or give this one a selector")
				case k.selecting != "":
					a.report(k.selecting, o, "spec",
						fmt.Sprintf("has no effect: %s has the same selector and %s", named(list[0]), precedence),
						"merge the two objects, or select different workloads")
				}
			}
		}
	}
}

func selectorOf(o *config.Object) map[string]string {
	if s, ok := o.Spec.(*networking.Sidecar); ok {
		return s.GetWorkloadSelector().GetLabels()
	}
	return push.SelectorLabels(o)
}
