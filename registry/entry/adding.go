package entry

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	networking "istio.io/api/networking/v1alpha3"

	"github.com/ashore-mesh/ashore/config"
	"github.com/ashore-mesh/ashore/internal/feed"
	"github.com/ashore-mesh/ashore/registry"
)

// adds says that a registered workload has labels of its own beside those of its group. What the control plane adds itself is
// none.
func adds(r *registry.Registration, group *config.Object) bool {
	return len(r.Labels) > 0 && !selects(registeredLabels(r, group.Spec.(*networking.WorkloadGroup)), groupLabels(group))
}

// groupLabels are the labels that every workload of a group has.
func groupLabels(group *config.Object) map[string]string {
	return GroupLabels(group.Spec.(*networking.WorkloadGroup), nil)
}

// chosen warns of workloads that a ServiceEntry selects by labels which they chose themselves as they joined: whoever may join
// their group may answer for its hosts. It costs nothing where nobody has such labels.
func (d *Deriver) chosen(o *config.Object) []feed.Problem {
	sel := o.Spec.(*networking.ServiceEntry).WorkloadSelector
	if sel == nil || len(d.registered.adding) == 0 {
		return nil
	}
	count, missing := map[string]int{}, map[string]map[string]bool{} // by group
	for _, w := range d.registered.adding.selected(o.Namespace, sel.Labels) {
		group := d.registered.groups[w]
		lacking := lacks(sel.Labels, groupLabels(group))
		if len(lacking) == 0 {
			continue // it would be selected without
		}
		name := group.Namespace + "/" + group.Name
		if count[name]++; missing[name] == nil {
			missing[name] = map[string]bool{}
		}
		for _, l := range lacking {
			missing[name][l] = true
		}
	}
	var out []feed.Problem
	for _, name := range slices.Sorted(maps.Keys(count)) {
		out = append(out, feed.Problem{
			Severity: feed.Warning, Source: source, Object: o.Key.String(), Field: "spec.workloadSelector", File: o.Origin.File, Line: o.Origin.Line,
			Text: fmt.Sprintf("selects %s of the WorkloadGroup %s by labels that they chose themselves as they joined (%s): whoever may join that group may answer for its hosts; "+
				"write the labels into the group, or select by labels that it has", workloadsText(count[name]), name, strings.Join(slices.Sorted(maps.Keys(missing[name])), ", ")),
		})
	}
	return out
}

// lacks are the pairs of want that labels does not have.
func lacks(want, labels map[string]string) []string {
	var out []string
	for k, v := range want {
		if have, ok := labels[k]; !ok || have != v {
			out = append(out, k+"="+v)
		}
	}
	return out
}

// workloadsText counts them.
func workloadsText(n int) string {
	if n == 1 {
		return "1 workload"
	}
	return fmt.Sprintf("%d workloads", n)
}
