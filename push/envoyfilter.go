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
	Filter *config.Object
	// Index is its place in spec.configPatches.
	Index int
}

// Spec returns the patch.
func (p Patch) Spec() *networking.EnvoyFilter_EnvoyConfigObjectPatch {
	return patchesOf(p.Filter)[p.Index]
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

// patchesOf returns the patches of an object.
func patchesOf(o *config.Object) []*networking.EnvoyFilter_EnvoyConfigObjectPatch {
	if o.Kind == config.TrafficExtension {
		return config.ExtensionPatches(o).ConfigPatches
	}
	return o.Spec.(*networking.EnvoyFilter).ConfigPatches
}

// AddsResource reports whether the patch adds a whole listener, cluster or extension.
func (p Patch) AddsResource() bool {
	switch s := p.Spec(); s.ApplyTo {
	case networking.EnvoyFilter_LISTENER, networking.EnvoyFilter_CLUSTER, networking.EnvoyFilter_EXTENSION_CONFIG:
		return config.PatchInserts(s.GetPatch().GetOperation())
	}
	return false
}

// Patched is what patches change.
type Patched uint8

const (
	// PatchedListeners are listeners with all that is in them; on the inbound side also their routes.
	PatchedListeners Patched = iota
	// PatchedRoutes are the route configurations of the outbound side and of gateways.
	PatchedRoutes
	// PatchedClusters are clusters.
	PatchedClusters
	// PatchedExtensions are configurations of extensions.
	PatchedExtensions
	patchedKinds
)

// Patches are the patches that apply to a proxy. Equal ones are one pointer.
type Patches struct {
	all             *intern.List[Patch]
	inbound, others [patchedKinds]*intern.List[Patch]
}

type patchesIn struct {
	tables *tables
	all    *intern.List[Patch]
}

// Of returns, in the order in which they apply, the patches of the inbound side of a sidecar, or else
// those of its outbound side or of a gateway.
func (p *Patches) Of(what Patched, inbound bool) *intern.List[Patch] {
	switch {
	case p == nil:
		return nil
	case inbound:
		return p.inbound[what]
	}
	return p.others[what]
}

// newPatches groups patches.
//
// Without a context, what is added is not for the inbound side. A patch of inbound clusters is for
// both sides, because they share one. Source: Istio.
func newPatches(in patchesIn) *Patches {
	var inbound, others [patchedKinds][]Patch
	for _, p := range in.all.Items() {
		what, context := patchedBy(p.Spec().ApplyTo), p.Spec().GetMatch().GetContext()
		isInbound := context == networking.EnvoyFilter_SIDECAR_INBOUND
		if !isInbound || what == PatchedExtensions || what == PatchedClusters && !p.AddsResource() {
			others[what] = append(others[what], p)
		}
		if what == PatchedRoutes {
			what = PatchedListeners
		}
		if what != PatchedExtensions && (isInbound || context == networking.EnvoyFilter_ANY && !p.AddsResource()) {
			inbound[what] = append(inbound[what], p)
		}
	}
	out := &Patches{all: in.all}
	for i := range patchedKinds {
		out.inbound[i], out.others[i] = in.tables.patches.Of(inbound[i]), in.tables.patches.Of(others[i])
	}
	return out
}

func patchedBy(to networking.EnvoyFilter_ApplyTo) Patched {
	switch to {
	case networking.EnvoyFilter_CLUSTER:
		return PatchedClusters
	case networking.EnvoyFilter_EXTENSION_CONFIG:
		return PatchedExtensions
	case networking.EnvoyFilter_ROUTE_CONFIGURATION, networking.EnvoyFilter_VIRTUAL_HOST,
		networking.EnvoyFilter_HTTP_ROUTE:
		return PatchedRoutes
	}
	return PatchedListeners
}

// Items returns all patches in the order in which they apply.
func (p *Patches) Items() []Patch {
	if p == nil {
		return nil
	}
	return p.all.Items()
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
	filters := in.filters.matching(config.EnvoyFilter, in.namespace, in.root, all)
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
	scripts := in.extensions.matching(config.TrafficExtension, in.namespace, in.root, all)
	slices.SortStableFunc(scripts, func(a, b *config.Object) int {
		return config.CompareExtensions(a.Spec.(*extensions.TrafficExtension), b.Spec.(*extensions.TrafficExtension))
	})
	return &filterView{slices.Concat(scripts, filters)}
}

// patchesFor returns Facets.Patches.
func (c *Context) patchesFor(n Node) *Patches {
	if c.filters.byKey.Len()+c.extensions.byKey.Len() == 0 {
		return nil
	}
	in := filterViewIn{c.extensions, c.filters, n.Namespace, c.in.Mesh.Config.GetRootNamespace()}
	var out []Patch
	for _, o := range keep(&c.cache.filters, c.tables.filterView, in).sorted {
		if !selects(SelectorLabels(o), n.Labels) {
			continue
		}
		for i, p := range patchesOf(o) {
			m := p.GetMatch()
			if config.PatchIgnored(p) == "" && inContext(m.GetContext(), n.Type) && c.matchesProxy(m.GetProxy(), n) {
				out = append(out, Patch{o, i})
			}
		}
	}
	if out == nil {
		return nil
	}
	return keep(&c.cache.patches, c.tables.patchesOf, patchesIn{c.tables, c.tables.patches.Of(out)})
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
