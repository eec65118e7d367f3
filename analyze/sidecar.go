package analyze

import (
	"fmt"
	"iter"
	"slices"

	networking "istio.io/api/networking/v1alpha3"

	"github.com/ashore-mesh/ashore/config"
	"github.com/ashore-mesh/ashore/push"
)

// sidecars checks that no two Sidecars have the same selector.
func (a *analysis) sidecars() {
	groups := selectorGroups{}
	for o := range a.objects(config.Sidecar) {
		groups.add(o, o.Spec.(*networking.Sidecar).GetWorkloadSelector().GetLabels())
	}
	for o, first := range groups.conflicts() {
		if len(o.Spec.(*networking.Sidecar).GetWorkloadSelector().GetLabels()) == 0 {
			a.report(SeveralDefaultSidecar, o, "spec.workloadSelector",
				fmt.Sprintf("has no effect: %s is for all of namespace %s too and %s",
					named(first), o.Namespace, precedence),
				"merge the two objects, or give this one a workloadSelector")
			continue
		}
		a.report(ConflictingSidecars, o, "spec.workloadSelector.labels",
			fmt.Sprintf("has no effect: %s has the same labels and %s", named(first), precedence),
			"merge the two objects, or select different workloads")
	}
}

// selectorGroups are objects of one kind by namespace and selector.
type selectorGroups map[[2]string][]*config.Object

func (g selectorGroups) add(o *config.Object, labels map[string]string) {
	key := [2]string{o.Namespace, labelsKey(labels)}
	g[key] = append(g[key], o)
}

// conflicts yields each object without effect, with the object of its group that takes precedence.
func (g selectorGroups) conflicts() iter.Seq2[*config.Object, *config.Object] {
	return func(yield func(o, first *config.Object) bool) {
		for _, list := range g {
			slices.SortFunc(list, push.CompareAge)
			for _, o := range list[1:] {
				if !yield(o, list[0]) {
					return
				}
			}
		}
	}
}
