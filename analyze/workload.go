package analyze

import (
	"maps"

	networking "istio.io/api/networking/v1alpha3"

	"github.com/ashore-mesh/ashore/config"
	"github.com/ashore-mesh/ashore/push"
	"github.com/ashore-mesh/ashore/registry"
)

// workload is something that a policy may select.
type workload struct {
	labels   map[string]string
	service  *registry.Service // nil: none
	endpoint *registry.Endpoint
}

// workloads is an index of everything that policies may select: endpoints, WorkloadEntries, WorkloadGroups and
// Gateways, which stand for their proxies.
type workloads struct {
	byLabel     map[labelKey][]*workload
	byNamespace map[string][]*workload
}

// labelKey is a label of the workloads of a namespace; "" is every namespace, and "*" an unknown one.
type labelKey struct{ namespace, name, value string }

const unknownNamespace = "*"

// allWorkloads is the index.
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

// selected yields the workloads of a namespace, "" for any, that have these labels.
func (x *workloads) selected(namespace string, want map[string]string) func(yield func(*workload) bool) {
	lists := [][]*workload{x.byNamespace[namespace]}
	if len(want) > 0 {
		lists = nil
		for k, v := range want {
			these := [][]*workload{x.byLabel[labelKey{namespace, k, v}]}
			if namespace != "" {
				these = append(these, x.byLabel[labelKey{unknownNamespace, k, v}])
			}
			if lists == nil || total(these) < total(lists) { // the rarest label is the quickest
				lists = these
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
