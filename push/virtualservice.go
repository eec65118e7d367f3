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

// virtualServices is the index of VirtualServices.
type virtualServices struct {
	byKey pmap.Map[config.Key, *VirtualService]
	// conditional are those of byKey with matches that apply to some clients only.
	conditional pmap.Map[config.Key, *VirtualService]
}

// with returns the index with the object of key replaced by o, or without it when o is nil.
func (x virtualServices) with(key config.Key, o *config.Object, domain string) virtualServices {
	x.conditional = x.conditional.Without(key)
	if o == nil {
		x.byKey = x.byKey.Without(key)
		return x
	}
	vs := resolveVirtualService(o, domain)
	x.byKey = x.byKey.With(key, vs)
	if len(vs.conditions) > 0 {
		x.conditional = x.conditional.With(key, vs)
	}
	return x
}

// resolveVirtualService writes out every short name of o's spec.
func resolveVirtualService(o *config.Object, domain string) *VirtualService {
	spec := proto.Clone(o.Spec).(*networking.VirtualService)
	full := func(host string) string { return config.ResolveHost(host, o.Namespace, domain) }
	for i, h := range spec.Hosts {
		spec.Hosts[i] = full(h)
	}
	spec.Gateways = gatewaysOf(o)
	for d := range destinationsOf(spec) {
		d.Host = full(d.Host)
	}
	for _, r := range spec.Http {
		for _, m := range r.Match {
			m.Gateways = resolveGateways(m.Gateways, o.Namespace)
		}
	}
	for _, r := range spec.Tcp {
		for _, m := range r.Match {
			m.Gateways = resolveGateways(m.Gateways, o.Namespace)
		}
	}
	for _, r := range spec.Tls {
		for _, m := range r.Match {
			m.Gateways = resolveGateways(m.Gateways, o.Namespace)
		}
	}
	return &VirtualService{Object: o, Spec: spec, conditions: conditionsOf(spec)}
}

// gatewaysOf are the full names of the gateways of a VirtualService as it is written: "mesh" where
// it names none.
func gatewaysOf(o *config.Object) []string {
	names := o.Spec.(*networking.VirtualService).Gateways
	if len(names) == 0 {
		return []string{MeshGateway}
	}
	return resolveGateways(slices.Clone(names), o.Namespace)
}

// resolveGateways writes "name" out as "namespace/name".
func resolveGateways(names []string, namespace string) []string {
	for i, n := range names {
		if n != MeshGateway && !strings.Contains(n, "/") {
			names[i] = namespace + "/" + n
		}
	}
	return names
}

// condition is a match that applies to some clients only.
type condition struct {
	// match is the HTTPMatchRequest, L4MatchAttributes or TLSMatchAttributes.
	match     any
	labels    map[string]string
	namespace string
}

// holds reports whether the condition applies to a proxy.
func (c condition) holds(n Node) bool {
	return (c.namespace == "" || c.namespace == n.Namespace) && selects(c.labels, n.Labels)
}

// sourceMatch is what the three kinds of matches have in common.
type sourceMatch interface {
	GetSourceLabels() map[string]string
	GetSourceNamespace() string
}

func conditionsOf(spec *networking.VirtualService) []condition {
	var out []condition
	add := func(m sourceMatch) {
		if len(m.GetSourceLabels()) > 0 || m.GetSourceNamespace() != "" {
			out = append(out, condition{match: m, labels: m.GetSourceLabels(), namespace: m.GetSourceNamespace()})
		}
	}
	for _, r := range spec.Http {
		for _, m := range r.Match {
			add(m)
		}
	}
	for _, r := range spec.Tcp {
		for _, m := range r.Match {
			add(m)
		}
	}
	for _, r := range spec.Tls {
		for _, m := range r.Match {
			add(m)
		}
	}
	return out
}

// CompareAge orders objects by precedence: the older object first, ties by namespace and name.
func CompareAge(a, b *config.Object) int {
	return cmp.Or(a.Created.Compare(b.Created), a.Key.Compare(b.Key))
}

// routeView are all VirtualServices, ordered for look-ups. Made from the whole index when it
// changed.
type routeView struct {
	// sorted by precedence.
	sorted []*VirtualService
	// special are the namespaces that see some which others do not.
	special map[string]bool
	// defaultTo is the mesh's default of exportTo.
	defaultTo []string
}

type routeViewIn struct {
	mesh  *Mesh
	byKey pmap.Map[config.Key, *VirtualService]
}

func newRouteView(in routeViewIn) *routeView {
	v := &routeView{special: map[string]bool{}, defaultTo: in.mesh.Config.GetDefaultVirtualServiceExportTo()}
	for _, vs := range in.byKey.All() {
		v.sorted = append(v.sorted, vs)
		addSpecial(v.special, vs.Spec.ExportTo, v.defaultTo, vs.Object.Namespace)
	}
	slices.SortFunc(v.sorted, func(a, b *VirtualService) int { return CompareAge(a.Object, b.Object) })
	return v
}

// visible lists those that namespace sees and for which keep is true: first those exported to it
// alone, then those exported to some namespaces, then the public ones; the older first in each.
func (v *routeView) visible(namespace string, keep func(*VirtualService) bool) []*VirtualService {
	var own, some, public []*VirtualService
	for _, vs := range v.sorted {
		to := exportTo(vs.Spec.ExportTo, v.defaultTo)
		if !visibleTo(to, vs.Object.Namespace, namespace) || !keep(vs) {
			continue
		}
		switch exportRank(to, vs.Object.Namespace) {
		case 0:
			own = append(own, vs)
		case 1:
			some = append(some, vs)
		default:
			public = append(public, vs)
		}
	}
	return slices.Concat(own, some, public)
}

// exportRank orders VirtualServices by whom they are exported to, before age: 0 their own namespace
// alone, 1 some, 2 all.
func exportRank(to []string, from string) int {
	switch {
	case slices.Contains(to, "*"):
		return 2
	case len(to) == 1 && (to[0] == "." || to[0] == from):
		return 0
	default:
		return 1
	}
}

// boundTo reports whether vs is for that gateway ("mesh": for sidecars).
func (vs *VirtualService) boundTo(gateway string) bool {
	return slices.Contains(vs.Spec.Gateways, gateway)
}
