package push

import (
	"maps"
	"slices"
)

// sidecarPlace are the Sidecars of one namespace that ask for one label, their first by name; an empty one are those
// that select everything.
type sidecarPlace struct {
	namespace string
	label     Label
}

// sidecarObjects checks that each Sidecar governs some workload: a proxy has one alone, and of several that select it
// the first.
func (d *dangling) sidecarObjects() {
	var sorted []*SidecarConfig
	for _, s := range d.context.sidecars.byKey.All() {
		sorted = append(sorted, s)
	}
	slices.SortFunc(sorted, func(a, b *SidecarConfig) int { return olderFirst(a.Object, b.Object) })
	before := map[sidecarPlace][]*SidecarConfig{}
	by := map[*SidecarConfig]*SidecarConfig{}
	for _, s := range sorted {
		if first := shadowing(before, s); first != nil {
			by[s] = first
			continue
		}
		at := sidecarPlace{s.Object.Namespace, firstLabel(s)}
		before[at] = append(before[at], s)
	}
	for _, s := range d.context.sidecars.byKey.All() {
		if first := by[s]; first != nil {
			d.shadowedSidecar(s, first)
		}
	}
}

// shadowing finds the Sidecar before s that selects all that s does, among those that have a selector if it has one.
func shadowing(before map[sidecarPlace][]*SidecarConfig, s *SidecarConfig) *SidecarConfig {
	labels := s.Spec.GetWorkloadSelector().GetLabels()
	if len(labels) == 0 {
		return firstOf(before[sidecarPlace{namespace: s.Object.Namespace}])
	}
	for _, name := range slices.Sorted(maps.Keys(labels)) {
		for _, o := range before[sidecarPlace{s.Object.Namespace, Label{name, labels[name]}}] {
			if selectsAll(o.Spec.WorkloadSelector.Labels, labels) {
				return o
			}
		}
	}
	return nil
}

func firstOf(list []*SidecarConfig) *SidecarConfig {
	if len(list) == 0 {
		return nil
	}
	return list[0]
}

// firstLabel is the first by name of those that s asks for; empty when it asks for none.
func firstLabel(s *SidecarConfig) Label {
	labels := s.Spec.GetWorkloadSelector().GetLabels()
	if len(labels) == 0 {
		return Label{}
	}
	name := slices.Min(slices.Collect(maps.Keys(labels)))
	return Label{name, labels[name]}
}

// shadowedSidecar tells that first governs whatever s selects.
func (d *dangling) shadowedSidecar(s, first *SidecarConfig) {
	other := d.context.in.Objects.At(first.Object.Key)
	const so = "comes first, by age or by name, and a proxy has one Sidecar alone, so this one has no effect: put what both say into one of them"
	if len(s.Spec.GetWorkloadSelector().GetLabels()) == 0 {
		d.warn(s.Object.Key, "spec.workloadSelector", "%s (%s) is for all of namespace %s too and %s, or give this one a workloadSelector", other.Key, placeIn(other), s.Object.Namespace, so)
		return
	}
	d.warn(s.Object.Key, "spec.workloadSelector.labels", "%s (%s) selects all that this one does and %s, or let them select different workloads", other.Key, placeIn(other), so)
}
