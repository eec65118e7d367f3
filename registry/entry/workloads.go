package entry

import (
	"slices"

	"github.com/ashore-mesh/ashore/config"
)

// workloads are WorkloadEntries by namespace and by each of their labels.
type workloads map[labelKey]map[config.Key]*config.Object

// labelKey is one label of one namespace; the empty label stands for all of the namespace.
type labelKey struct{ namespace, key, value string }

func (x workloads) add(o *config.Object) {
	for k := range keysOf(o) {
		if x[k] == nil {
			x[k] = map[config.Key]*config.Object{}
		}
		x[k][o.Key] = o
	}
}

func (x workloads) remove(o *config.Object) {
	for k := range keysOf(o) {
		if x[k][o.Key] == o { // or another of the same name took its place
			delete(x[k], o.Key)
		}
		if len(x[k]) == 0 {
			delete(x, k)
		}
	}
}

// keysOf yields everything that o is found by.
func keysOf(o *config.Object) func(yield func(labelKey) bool) {
	return func(yield func(labelKey) bool) {
		if !yield(labelKey{namespace: o.Namespace}) {
			return
		}
		for k, v := range labelsOf(o) {
			if !yield(labelKey{o.Namespace, k, v}) {
				return
			}
		}
	}
}

// selected lists the workloads of namespace that have every label of want, by name. An empty want
// selects all of them.
func (x workloads) selected(namespace string, want map[string]string) []*config.Object {
	few := x[labelKey{namespace: namespace}]
	for k, v := range want {
		if with := x[labelKey{namespace, k, v}]; len(with) < len(few) {
			few = with
		}
	}
	out := make([]*config.Object, 0, len(few))
	for _, o := range few {
		if selects(want, labelsOf(o)) {
			out = append(out, o)
		}
	}
	slices.SortFunc(out, func(a, b *config.Object) int { return a.Key.Compare(b.Key) })
	return out
}

// selects says whether labels has every pair of want.
func selects(want, labels map[string]string) bool {
	for k, v := range want {
		if have, ok := labels[k]; !ok || have != v {
			return false
		}
	}
	return true
}
