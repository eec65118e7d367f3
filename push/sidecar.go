package push

import (
	"slices"

	networking "istio.io/api/networking/v1alpha3"

	"github.com/ashore-mesh/ashore/config"
	"github.com/ashore-mesh/ashore/internal/pmap"
)

// sidecars is the index of Sidecar objects; those of one namespace stand together.
type sidecars struct {
	byKey pmap.Map[config.Key, *SidecarConfig]
}

func (x sidecars) with(key config.Key, o *config.Object) sidecars {
	if o == nil {
		x.byKey = x.byKey.Without(key)
		return x
	}
	x.byKey = x.byKey.With(key, &SidecarConfig{Object: o, Spec: o.Spec.(*networking.Sidecar)})
	return x
}

// governing returns the Sidecar that governs n, nil when none does: one of its namespace that selects
// it, else its namespace's default, else the root namespace's default; the older of several.
// Source: istio.io, Sidecar: "one and only one".
func (x sidecars) governing(n Node, root string) *SidecarConfig {
	if n.Type != Sidecar || x.byKey.Len() == 0 {
		return nil
	}
	var selecting, fallback []*SidecarConfig
	for s := range x.of(n.Namespace) {
		switch want := s.Spec.GetWorkloadSelector().GetLabels(); {
		case len(want) == 0:
			fallback = append(fallback, s)
		case selects(want, n.Labels):
			selecting = append(selecting, s)
		}
	}
	if len(selecting) == 0 && len(fallback) == 0 && n.Namespace != root {
		for s := range x.of(root) {
			if len(s.Spec.GetWorkloadSelector().GetLabels()) == 0 {
				fallback = append(fallback, s)
			}
		}
	}
	for _, candidates := range [][]*SidecarConfig{selecting, fallback} {
		if len(candidates) > 0 {
			return slices.MinFunc(candidates, func(a, b *SidecarConfig) int { return olderFirst(a.Object, b.Object) })
		}
	}
	return nil
}

// of yields the Sidecars of a namespace.
func (x sidecars) of(namespace string) func(yield func(*SidecarConfig) bool) {
	return func(yield func(*SidecarConfig) bool) {
		for k, s := range x.byKey.From(config.Key{Kind: config.Sidecar, Namespace: namespace}) {
			if k.Namespace != namespace || !yield(s) {
				return
			}
		}
	}
}
