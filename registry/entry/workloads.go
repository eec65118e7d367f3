package entry

import (
	"iter"
	"maps"
	"slices"

	networking "istio.io/api/networking/v1alpha3"

	"github.com/ashore-mesh/ashore/config"
	"github.com/ashore-mesh/ashore/registry"
)

// workload is a WorkloadEntry that services may select.
type workload struct {
	object *config.Object
	// registration is what object was derived from. Nil if an operator wrote object.
	registration *registry.Registration
}

// writtenWorkload returns the workload of an operator's WorkloadEntry, or nil for nil.
func writtenWorkload(o *config.Object) *workload {
	if o == nil {
		return nil
	}
	return &workload{object: o}
}

// workloads indexes workloads by namespace and by each of their labels.
type workloads index[labelKey, *workload]

// labelKey is a label in a namespace. The empty label stands for all workloads of the namespace.
type labelKey struct{ namespace, name, value string }

// labelKeys yields the keys under which a workload with labels is indexed.
func labelKeys(namespace string, labels map[string]string) iter.Seq[labelKey] {
	return func(yield func(labelKey) bool) {
		if !yield(labelKey{namespace: namespace}) {
			return
		}
		for name, value := range labels {
			if !yield(labelKey{namespace, name, value}) {
				return
			}
		}
	}
}

// selectorKey returns the key under which a selector is indexed: its first label by name. Every
// workload that it selects has that label.
func selectorKey(namespace string, labels map[string]string) labelKey {
	if len(labels) == 0 {
		return labelKey{namespace: namespace}
	}
	first := slices.Min(slices.Collect(maps.Keys(labels)))
	return labelKey{namespace, first, labels[first]}
}

// set adds a workload, or removes it. It does not remove another one of the same key.
func (x workloads) set(w *workload, present bool) {
	for k := range labelKeys(w.object.Namespace, labelsOf(w.object)) {
		if other := x[k][w.object.Key]; present || other != nil && other.object == w.object {
			index[labelKey, *workload](x).set(k, w.object.Key, w, present)
		}
	}
}

// selected returns the workloads of a namespace that have all labels of a selector, sorted by name.
func (x workloads) selected(namespace string, selector map[string]string) []*workload {
	fewest := x[labelKey{namespace: namespace}]
	for name, value := range selector {
		if m := x[labelKey{namespace, name, value}]; len(m) < len(fewest) {
			fewest = m
		}
	}
	var out []*workload
	for _, w := range fewest {
		if registry.SelectsAll(selector, labelsOf(w.object)) {
			out = append(out, w)
		}
	}
	slices.SortFunc(out, func(a, b *workload) int { return a.object.Key.Compare(b.object.Key) })
	return out
}

// labelsOf returns the labels of a WorkloadEntry: those of its metadata, and over them those of its
// spec.
func labelsOf(o *config.Object) map[string]string {
	spec := o.Spec.(*networking.WorkloadEntry).Labels
	if len(o.Labels) == 0 {
		return spec
	}
	all := maps.Clone(o.Labels)
	maps.Copy(all, spec)
	return all
}
