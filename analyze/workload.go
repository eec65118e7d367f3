package analyze

import (
	"iter"
	"maps"
	"slices"

	networking "istio.io/api/networking/v1alpha3"

	"github.com/ashore-mesh/ashore/config"
	"github.com/ashore-mesh/ashore/registry"
)

// workload is an endpoint, or an object that stands for one, which policies may select.
type workload struct {
	labels   map[string]string
	service  *registry.Service  // nil: none
	endpoint *registry.Endpoint // nil: none
}

// unknownNamespace is the namespace of the proxies that a Gateway selects.
const unknownNamespace = "*"

// allWorkloads returns what policies may select, by namespace: endpoints, WorkloadEntries,
// WorkloadGroups, and Gateways for their proxies.
func (a *analysis) allWorkloads() map[string][]workload {
	if a.workloads != nil {
		return a.workloads
	}
	a.workloads = map[string][]workload{}
	add := func(namespace string, w workload) { a.workloads[namespace] = append(a.workloads[namespace], w) }
	for k, list := range a.in.Endpoints.All() {
		s := a.in.Services.At(k)
		if s == nil || s.External {
			continue
		}
		for i := range list.All() {
			ep := &list.Items[i]
			add(ep.Namespace, workload{ep.Labels, s, ep})
		}
	}
	for o := range a.objects(config.WorkloadEntry) {
		add(o.Namespace, workload{labels: union(o.Labels, o.Spec.(*networking.WorkloadEntry).Labels)})
	}
	for o := range a.objects(config.WorkloadGroup) {
		spec := o.Spec.(*networking.WorkloadGroup)
		add(o.Namespace, workload{labels: union(spec.GetTemplate().GetLabels(), spec.GetMetadata().GetLabels())})
	}
	for o := range a.objects(config.Gateway) {
		add(unknownNamespace, workload{labels: o.Spec.(*networking.Gateway).Selector})
	}
	return a.workloads
}

// union returns the labels of both maps. Those of the second take precedence.
func union(first, second map[string]string) map[string]string {
	out := maps.Clone(first)
	if out == nil {
		return second
	}
	maps.Copy(out, second)
	return out
}

// selected yields the workloads of a namespace that have these labels. An empty namespace stands
// for all.
func (a *analysis) selected(namespace string, want map[string]string) iter.Seq[workload] {
	namespaces := []string{namespace, unknownNamespace}
	if namespace == "" {
		namespaces = slices.Sorted(maps.Keys(a.allWorkloads()))
	}
	return func(yield func(workload) bool) {
		for _, ns := range namespaces {
			for _, w := range a.allWorkloads()[ns] {
				if registry.SelectsAll(want, w.labels) && !yield(w) {
					return
				}
			}
		}
	}
}
