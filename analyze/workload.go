package analyze

import (
	"iter"
	"maps"

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

// workloads indexes what policies may select: endpoints, WorkloadEntries, WorkloadGroups, and Gateways for their
// proxies.
type workloads struct {
	byLabel     map[labelKey][]*workload
	byNamespace map[string][]*workload
}

// labelKey is a label of the workloads of a namespace. An empty namespace stands for all.
type labelKey struct{ namespace, name, value string }

// unknownNamespace is the namespace of the proxies that a Gateway selects.
const unknownNamespace = "*"

// allWorkloads returns the index of all workloads.
func (a *analysis) allWorkloads() *workloads {
	if a.known != nil {
		return a.known
	}
	x := &workloads{byLabel: map[labelKey][]*workload{}, byNamespace: map[string][]*workload{}}
	a.known = x
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
		labels := map[string]string{}
		maps.Copy(labels, spec.GetTemplate().GetLabels())
		maps.Copy(labels, spec.GetMetadata().GetLabels())
		x.add(o.Namespace, &workload{labels: labels})
	}
	for o := range a.objects(config.Gateway) {
		x.add(unknownNamespace, &workload{labels: o.Spec.(*networking.Gateway).Selector})
	}
	return x
}

func (x *workloads) add(namespace string, w *workload) {
	for _, ns := range []string{namespace, ""} {
		if namespace != unknownNamespace {
			x.byNamespace[ns] = append(x.byNamespace[ns], w)
		}
		for k, v := range w.labels {
			key := labelKey{ns, k, v}
			x.byLabel[key] = append(x.byLabel[key], w)
		}
	}
}

// selected yields the workloads of a namespace that have these labels. An empty namespace stands for all.
func (x *workloads) selected(namespace string, want map[string]string) iter.Seq[*workload] {
	lists := [][]*workload{x.byNamespace[namespace]}
	if len(want) > 0 {
		lists = nil
		for k, v := range want {
			candidates := [][]*workload{x.byLabel[labelKey{namespace, k, v}]}
			if namespace != "" {
				candidates = append(candidates, x.byLabel[labelKey{unknownNamespace, k, v}])
			}
			if lists == nil || total(candidates) < total(lists) { // the rarest label is the fastest
				lists = candidates
			}
		}
	}
	return func(yield func(*workload) bool) {
		for _, list := range lists {
			for _, w := range list {
				if push.SelectsAll(want, w.labels) && !yield(w) {
					return
				}
			}
		}
	}
}

func total(lists [][]*workload) (n int) {
	for _, l := range lists {
		n += len(l)
	}
	return n
}
