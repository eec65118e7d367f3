package analyze

import (
	"iter"
	"maps"
	"slices"

	networking "istio.io/api/networking/v1alpha3"

	"github.com/ashore-mesh/ashore/config"
	"github.com/ashore-mesh/ashore/push"
	"github.com/ashore-mesh/ashore/registry"
)

// workload is an endpoint, or an object that stands for one, which policies may select.
type workload struct {
	labels   map[string]string
	service  *registry.Service  // nil: none
	endpoint *registry.Endpoint // nil: none
}

// workloads indexes what policies may select: endpoints, WorkloadEntries, WorkloadGroups, and
// Gateways for their proxies.
type workloads map[labelKey][]*workload

// labelKey is a label of the workloads of a namespace. An empty namespace stands for all, and an
// empty label too.
type labelKey struct{ namespace, name, value string }

// unknownNamespace is the namespace of the proxies that a Gateway selects.
const unknownNamespace = "*"

// allWorkloads returns the index of all workloads.
func (a *analysis) allWorkloads() workloads {
	if a.workloads != nil {
		return a.workloads
	}
	x := workloads{}
	a.workloads = x
	for k, list := range a.in.Endpoints.All() {
		s := a.in.Services.At(k)
		if s == nil || s.External {
			continue
		}
		for i := range list.All() {
			ep := &list.Items[i]
			x.add(ep.Namespace, &workload{ep.Labels, s, ep})
		}
	}
	for o := range a.objects(config.WorkloadEntry) {
		x.add(o.Namespace, &workload{labels: o.Spec.(*networking.WorkloadEntry).Labels})
	}
	for o := range a.objects(config.WorkloadGroup) {
		spec := o.Spec.(*networking.WorkloadGroup)
		labels := maps.Clone(spec.GetTemplate().GetLabels())
		if labels == nil {
			labels = map[string]string{}
		}
		maps.Copy(labels, spec.GetMetadata().GetLabels())
		x.add(o.Namespace, &workload{labels: labels})
	}
	for o := range a.objects(config.Gateway) {
		x.add(unknownNamespace, &workload{labels: o.Spec.(*networking.Gateway).Selector})
	}
	return x
}

func (x workloads) add(namespace string, w *workload) {
	for _, ns := range []string{namespace, ""} {
		x[labelKey{namespace: ns}] = append(x[labelKey{namespace: ns}], w)
		for k, v := range w.labels {
			key := labelKey{ns, k, v}
			x[key] = append(x[key], w)
		}
	}
}

// selected yields the workloads of a namespace that have these labels. An empty namespace stands
// for all.
func (x workloads) selected(namespace string, want map[string]string) iter.Seq[*workload] {
	candidates := x.at(labelKey{namespace: namespace})
	for k, v := range want {
		if list := x.at(labelKey{namespace, k, v}); len(list) < len(candidates) { // the rarest label is the fastest
			candidates = list
		}
	}
	return func(yield func(*workload) bool) {
		for _, w := range candidates {
			if push.SelectsAll(want, w.labels) && !yield(w) {
				return
			}
		}
	}
}

// at returns the workloads with a label that are, or may be, in its namespace.
func (x workloads) at(key labelKey) []*workload {
	list := x[key]
	if key.namespace == "" {
		return list
	}
	key.namespace = unknownNamespace
	return slices.Concat(list, x[key])
}
