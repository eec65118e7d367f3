package push

import (
	"cmp"
	"slices"
	"strings"

	networking "istio.io/api/networking/v1alpha3"

	"google.golang.org/protobuf/proto"

	"github.com/ashore-mesh/ashore/config"
	"github.com/ashore-mesh/ashore/internal/pmap"
)

// MeshGateway is the name of the gateway that stands for all sidecars.
const MeshGateway = "mesh"

// virtualServices is the index of VirtualServices. Delegates are part of those that delegate to them.
type virtualServices struct {
	byKey pmap.Map[config.Key, *VirtualService]
	// delegating holds the VirtualServices that delegate routes to others.
	delegating pmap.Map[config.Key, *VirtualService]
	// conditional holds the VirtualServices that have conditions.
	conditional pmap.Map[config.Key, *VirtualService]
}

// with returns a copy of the index with ch applied, which is part of in. If a delegate changes, the
// VirtualServices that delegate to it are made anew.
func (x virtualServices) with(ch pmap.Change[config.Key, *config.Object], in Inputs) virtualServices {
	key := ch.Key
	x.byKey, x.conditional, x.delegating = x.byKey.Without(key), x.conditional.Without(key), x.delegating.Without(key)
	if ch.New != nil && !isDelegate(ch.New) {
		x = x.add(ch.New, in)
	}
	wasDelegate, isNow := ch.Old != nil && isDelegate(ch.Old), ch.New != nil && isDelegate(ch.New)
	if !wasDelegate && !isNow {
		return x
	}
	for _, vs := range x.delegating.All() {
		if !vs.delegatesTo(key) {
			continue
		}
		if root := in.Objects.At(vs.Object.Key); root != nil {
			x = x.add(root, in)
		}
	}
	return x
}

func (x virtualServices) add(o *config.Object, in Inputs) virtualServices {
	vs := resolveVirtualService(o, in)
	x.byKey = x.byKey.With(o.Key, vs)
	x.conditional = x.conditional.Without(o.Key)
	if len(vs.conditions) > 0 {
		x.conditional = x.conditional.With(o.Key, vs)
	}
	if slices.ContainsFunc(vs.own.Http, delegates) {
		x.delegating = x.delegating.With(o.Key, vs)
	}
	return x
}

// resolveVirtualService returns o with every short name in its spec resolved, and with the routes
// of its delegates.
func resolveVirtualService(o *config.Object, in Inputs) *VirtualService {
	vs := &VirtualService{Object: o, own: resolveNames(o, in.Mesh.Domain)}
	vs.Spec = vs.own
	vs.exportTo = exportTo(vs.own.ExportTo, in.Mesh.Config.GetDefaultVirtualServiceExportTo())
	if slices.ContainsFunc(vs.own.Http, delegates) {
		vs.mergeDelegates(in)
	}
	vs.conditions = slices.DeleteFunc(routeMatches(vs.Spec), func(m routeMatch) bool {
		return len(m.GetSourceLabels()) == 0 && m.GetSourceNamespace() == ""
	})
	return vs
}

// resolveNames returns the spec of a VirtualService with every short name in it resolved.
func resolveNames(o *config.Object, domain string) *networking.VirtualService {
	spec := proto.Clone(o.Spec).(*networking.VirtualService)
	full := func(host string) string { return config.ResolveHost(host, o.Namespace, domain) }
	for i, h := range spec.Hosts {
		spec.Hosts[i] = full(h)
	}
	spec.Gateways = gatewaysOf(o)
	for d := range destinations(spec) {
		d.Host = full(d.Host)
	}
	for _, m := range routeMatches(spec) {
		resolveGateways(m.GetGateways(), o.Namespace)
	}
	return spec
}

// gatewaysOf returns the full names of the gateways of a VirtualService, or "mesh" if it names
// none.
func gatewaysOf(o *config.Object) []string {
	names := o.Spec.(*networking.VirtualService).Gateways
	if len(names) == 0 {
		return []string{MeshGateway}
	}
	return resolveGateways(slices.Clone(names), o.Namespace)
}

// resolveGateways replaces "name" by "namespace/name", in place.
func resolveGateways(names []string, namespace string) []string {
	for i, n := range names {
		if n != MeshGateway && !strings.Contains(n, "/") {
			names[i] = namespace + "/" + n
		}
	}
	return names
}

// routeMatch is an HTTPMatchRequest, an L4MatchAttributes or a TLSMatchAttributes.
type routeMatch interface {
	GetGateways() []string
	GetSourceLabels() map[string]string
	GetSourceNamespace() string
}

// routeMatches returns the matches of all routes of a VirtualService.
func routeMatches(spec *networking.VirtualService) (out []routeMatch) {
	for _, r := range spec.Http {
		for _, m := range r.Match {
			out = append(out, m)
		}
	}
	for _, r := range spec.Tcp {
		for _, m := range r.Match {
			out = append(out, m)
		}
	}
	for _, r := range spec.Tls {
		for _, m := range r.Match {
			out = append(out, m)
		}
	}
	return out
}

// holds reports whether a match applies to a proxy.
func holds(m routeMatch, n Node) bool {
	namespace := m.GetSourceNamespace()
	return (namespace == "" || namespace == n.Namespace) && selects(m.GetSourceLabels(), n.Labels)
}

// CompareAge orders objects by precedence: the older object first, ties by namespace and name.
func CompareAge(a, b *config.Object) int {
	return cmp.Or(a.Created.Compare(b.Created), a.Key.Compare(b.Key))
}

// routeView looks up VirtualServices. It is built from the whole index whenever that changes.
type routeView struct {
	// sorted holds all VirtualServices by precedence.
	sorted []*VirtualService
	// namespacesWithOwnView are the namespaces that see a VirtualService that others do not see.
	namespacesWithOwnView map[string]bool
}

func newRouteView(byKey pmap.Map[config.Key, *VirtualService]) *routeView {
	v := &routeView{namespacesWithOwnView: map[string]bool{}}
	for _, vs := range byKey.All() {
		v.sorted = append(v.sorted, vs)
		addNamespacesWithOwnView(v.namespacesWithOwnView, vs.exportTo, vs.Object.Namespace)
	}
	slices.SortFunc(v.sorted, func(a, b *VirtualService) int { return CompareAge(a.Object, b.Object) })
	return v
}

// visible returns the VirtualServices that namespace sees and for which keep returns true. Those
// that are exported to it alone are first, then those exported to several namespaces, then the
// public ones, each sorted by age.
func (v *routeView) visible(namespace string, keep func(*VirtualService) bool) []*VirtualService {
	var private, shared, public []*VirtualService
	for _, vs := range v.sorted {
		if !visibleTo(vs.exportTo, vs.Object.Namespace, namespace) || !keep(vs) {
			continue
		}
		switch vs.exportRank() {
		case 0:
			private = append(private, vs)
		case 1:
			shared = append(shared, vs)
		default:
			public = append(public, vs)
		}
	}
	return slices.Concat(private, shared, public)
}

// exportRank returns the rank by exportTo, which takes precedence over age: 0 for its own namespace
// alone, 1 for several namespaces, 2 for all.
func (vs *VirtualService) exportRank() int {
	switch to := vs.exportTo; {
	case slices.Contains(to, "*"):
		return 2
	case len(to) == 1 && (to[0] == "." || to[0] == vs.Object.Namespace):
		return 0
	default:
		return 1
	}
}

// boundTo reports whether vs names that gateway, or sidecars for MeshGateway.
func (vs *VirtualService) boundTo(gateway string) bool {
	return slices.Contains(vs.Spec.Gateways, gateway)
}
