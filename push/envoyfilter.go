package push

import (
	"cmp"
	"regexp"
	"slices"

	networking "istio.io/api/networking/v1alpha3"

	"github.com/ashore-mesh/ashore/config"
	"github.com/ashore-mesh/ashore/internal/intern"
)

// Patch is one patch of an EnvoyFilter. Comparable.
type Patch struct {
	Filter *config.Object
	// Index is its place in spec.configPatches.
	Index int
}

// Spec returns the patch as it is written.
func (p Patch) Spec() *networking.EnvoyFilter_EnvoyConfigObjectPatch {
	return p.Filter.Spec.(*networking.EnvoyFilter).ConfigPatches[p.Index]
}

// versionKey is the metadata of a node that proxyVersion matches.
// Source: istio.io, EnvoyFilter.ProxyMatch.
const versionKey = "ISTIO_VERSION"

// patchesFor returns Facets.Patches.
// Source: Istio, pilot/pkg/model, PushContext.EnvoyFilters.
func (c *Context) patchesFor(n Node) *intern.List[Patch] {
	root := c.in.Mesh.Config.GetRootNamespace()
	matches := func(want map[string]string) bool { return selects(want, n.Labels) }
	filters := c.filters.matching(config.EnvoyFilter, n.Namespace, root, matches)
	fromRoot := func(o *config.Object) int {
		if o.Namespace == root {
			return 0
		}
		return 1
	}
	slices.SortStableFunc(filters, func(a, b *config.Object) int {
		return cmp.Or(
			cmp.Compare(a.Spec.(*networking.EnvoyFilter).Priority, b.Spec.(*networking.EnvoyFilter).Priority),
			cmp.Compare(fromRoot(a), fromRoot(b)))
	})
	var out []Patch
	for _, o := range filters {
		for i, p := range o.Spec.(*networking.EnvoyFilter).ConfigPatches {
			if inContext(p.GetMatch().GetContext(), n.Type) && c.matchesProxy(p.GetMatch().GetProxy(), n) {
				out = append(out, Patch{o, i})
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
