package entry

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	networking "istio.io/api/networking/v1alpha3"

	"github.com/ashore-mesh/ashore/config"
	"github.com/ashore-mesh/ashore/internal/feed"
)

// selectedByOwnLabels returns a warning if a ServiceEntry selects workloads by labels that they set
// themselves when they registered. Then all who may join the group can serve its hosts.
func (d *Deriver) selectedByOwnLabels(o *config.Object) []feed.Problem {
	sel := o.Spec.(*networking.ServiceEntry).WorkloadSelector
	if sel == nil {
		return nil
	}
	labels := map[string][]string{} // by group
	for _, w := range d.registered.selected(o.Namespace, sel.Labels) {
		if !w.ownLabels {
			continue
		}
		added := missing(sel.Labels, GroupLabels(w.group.Spec.(*networking.WorkloadGroup), nil))
		if len(added) > 0 {
			labels[w.group.Namespace+"/"+w.group.Name] = slices.Sorted(slices.Values(added))
		}
	}
	var out []feed.Problem
	for _, group := range slices.Sorted(maps.Keys(labels)) {
		out = append(out, feed.Problem{
			Severity: feed.Warning, Source: source, Object: o.Key.String(), Field: "spec.workloadSelector",
			File: o.Origin.File, Line: o.Origin.Line,
			Text: fmt.Sprintf("selects workloads of WorkloadGroup %s by labels that they set themselves (%s): "+
				"everyone who may join the group can serve these hosts; set the labels in the group, or select by others",
				group, strings.Join(labels[group], ", ")),
		})
	}
	return out
}
