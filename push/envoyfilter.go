package push

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"

	extensions "istio.io/api/extensions/v1alpha1"
	networking "istio.io/api/networking/v1alpha3"

	"github.com/ashore-mesh/ashore/config"
	"github.com/ashore-mesh/ashore/internal/intern"
)

// Patch is one patch of an EnvoyFilter, or one that stands for a TrafficExtension. Comparable.
type Patch struct {
	// Filter is the EnvoyFilter or the TrafficExtension.
	Filter *config.Object
	// Index is its place in spec.configPatches.
	Index int

	of *networking.EnvoyFilter // tables.patchesOf of Filter
}

// Spec returns the patch.
func (p Patch) Spec() *networking.EnvoyFilter_EnvoyConfigObjectPatch {
	return p.of.ConfigPatches[p.Index]
}

// String names the patch to people.
func (p Patch) String() string {
	if p.Filter.Kind == config.TrafficExtension {
		return p.Filter.Key.String()
	}
	return fmt.Sprintf("%s/%s configPatches[%d]", p.Filter.Namespace, p.Filter.Name, p.Index)
}

// Field returns the path of the patch within its object.
func (p Patch) Field() string {
	if p.Filter.Kind == config.TrafficExtension {
		return "spec"
	}
	return fmt.Sprintf("spec.configPatches[%d]", p.Index)
}

// patchesOf returns the patches of an EnvoyFilter, or those that stand for a TrafficExtension. They are
// one pointer for one object.
func (t *tables) patchesOf(o *config.Object) *networking.EnvoyFilter {
	if o.Kind == config.TrafficExtension {
		return t.extensions.Get(o)
	}
	return o.Spec.(*networking.EnvoyFilter)
}

// versionKey is the metadata of a node that proxyVersion matches.
// Source: istio.io, EnvoyFilter.ProxyMatch.
const versionKey = "ISTIO_VERSION"

// filterView lists the TrafficExtensions and EnvoyFilters for proxies of one namespace, in the order in
// which they apply.
type filterView struct{ sorted []*config.Object }

type filterViewIn struct {
	extensions, filters policies
	namespace, root     string
}

// newFilterView sorts EnvoyFilters by priority; then those of the root namespace are first, and the
// older ones. TrafficExtensions come before them, so that patches can change them.
// Source: Istio, pilot/pkg/model, PushContext.EnvoyFilters.
func newFilterView(in filterViewIn) *filterView {
	all := func(map[string]string) bool { return true }
	filters := in.filters.matching(in.namespace, in.root, all)
	rank := func(o *config.Object) int {
		if o.Namespace == in.root {
			return 0
		}
		return 1
	}
	slices.SortStableFunc(filters, func(a, b *config.Object) int {
		return cmp.Or(
			cmp.Compare(a.Spec.(*networking.EnvoyFilter).Priority, b.Spec.(*networking.EnvoyFilter).Priority),
			cmp.Compare(rank(a), rank(b)))
	})
	scripts := in.extensions.matching(in.namespace, in.root, all)
	slices.SortStableFunc(scripts, func(a, b *config.Object) int {
		return config.CompareExtensions(a.Spec.(*extensions.TrafficExtension), b.Spec.(*extensions.TrafficExtension))
	})
	return &filterView{slices.Concat(scripts, filters)}
}

// patchesFor returns Facets.Patches.
func (c *Context) patchesFor(n Node) *intern.List[Patch] {
	extensions, filters := c.policies[config.TrafficExtension], c.policies[config.EnvoyFilter]
	if extensions.byKey.Len()+filters.byKey.Len() == 0 {
		return nil
	}
	in := filterViewIn{extensions, filters, n.Namespace, c.in.Mesh.Config.GetRootNamespace()}
	var out []Patch
	for _, o := range keep(&c.cache.filters, c.tables.filterView, in).sorted {
		if !selects(SelectorLabels(o), n.Labels) {
			continue
		}
		of := c.tables.patchesOf(o)
		for i, p := range of.ConfigPatches {
			m := p.GetMatch()
			if config.PatchIgnored(p) == "" && inContext(m.GetContext(), n.Type) && c.matchesProxy(m.GetProxy(), n) {
				out = append(out, Patch{o, i, of})
			}
		}
	}
	return c.tables.patches.Of(out)
}

// inContext reports whether proxies of a type have what a patch context stands for.
func inContext(context networking.EnvoyFilter_PatchContext, t NodeType) bool {
	switch context {
	case networking.EnvoyFilter_ANY:
		return true
	case networking.EnvoyFilter_GATEWAY:
		return t == Router
	case networking.EnvoyFilter_SIDECAR_INBOUND, networking.EnvoyFilter_SIDECAR_OUTBOUND:
		return t == Sidecar
	}
	return false
}

// matchesProxy reports whether a proxy has the version and the metadata that a patch asks for.
func (c *Context) matchesProxy(m *networking.EnvoyFilter_ProxyMatch, n Node) bool {
	if pattern := m.GetProxyVersion(); pattern != "" {
		version := keep(&c.cache.versions, c.tables.versions, pattern)
		if v := n.metadata(versionKey); v == "" || !version.MatchString(v) {
			return false
		}
	}
	return selects(m.GetMetadata(), n.Metadata)
}

// compileVersion compiles a pattern of versions, which config.Validate has checked.
func compileVersion(pattern string) *regexp.Regexp { return regexp.MustCompile(pattern) }
