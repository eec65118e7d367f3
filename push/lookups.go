package push

import (
	"cmp"
	"iter"
	"maps"
	"slices"

	networking "istio.io/api/networking/v1alpha3"

	"github.com/ashore-mesh/ashore/config"
	"github.com/ashore-mesh/ashore/registry"
)

// This file is what package analyze needs of a Context beside its inputs: the look-ups that decide what proxies see.

// VirtualServices yields all VirtualServices, with every short name in them written out.
func (c *Context) VirtualServices() iter.Seq[*VirtualService] {
	return func(yield func(*VirtualService) bool) {
		for _, vs := range c.virtual.byKey.All() {
			if !yield(vs) {
				return
			}
		}
	}
}

// ServiceFor is the service that clients in a namespace reach by exactly that host; nil when there is none. The empty
// namespace stands for all namespaces that see nothing special.
func (c *Context) ServiceFor(namespace, host string) *registry.Service {
	return c.cache.services().find(namespace, host)
}

// RuleFor is the DestinationRule that clients in a namespace apply to s; nil when there is none.
func (c *Context) RuleFor(namespace string, s *registry.Service) *DestinationRule {
	return c.cache.rules().find(namespace, s)
}

// ClientNamespaces are the namespaces whose clients may see services or rules that others do not see, sorted. The
// first is empty and stands for all others.
func (c *Context) ClientNamespaces() []string {
	out := map[string]bool{"": true}
	maps.Copy(out, c.cache.services().special)
	maps.Copy(out, c.cache.rules().special)
	return slices.Sorted(maps.Keys(out))
}

// ExportedTo are the namespaces that a VirtualService or DestinationRule is exported to. One empty name stands for all.
func (c *Context) ExportedTo(o *config.Object) []string {
	var to []string
	switch spec := o.Spec.(type) {
	case *networking.VirtualService:
		to = exportTo(spec.ExportTo, c.in.Mesh.Config.GetDefaultVirtualServiceExportTo())
	case *networking.DestinationRule:
		to = exportTo(spec.ExportTo, c.in.Mesh.Config.GetDefaultDestinationRuleExportTo())
	}
	return audience(to, o.Namespace)
}

// ServiceExportedTo are the namespaces that a service is exported to. One empty name stands for all.
func (c *Context) ServiceExportedTo(s *registry.Service) []string {
	return audience(exportTo(s.ExportTo, c.in.Mesh.Config.GetDefaultServiceExportTo()), s.Namespace)
}

// CompareRoutes orders VirtualServices by precedence: the narrower exportTo first, then the older, then by name.
func (c *Context) CompareRoutes(a, b *VirtualService) int {
	rank := func(vs *VirtualService) int {
		to := exportTo(vs.Spec.ExportTo, c.in.Mesh.Config.GetDefaultVirtualServiceExportTo())
		return exportRank(to, vs.Object.Namespace)
	}
	return cmp.Or(cmp.Compare(rank(a), rank(b)), CompareAge(a.Object, b.Object))
}

// Destinations yields all destinations that a VirtualService names, with the path of each field.
func (vs *VirtualService) Destinations() iter.Seq2[string, *networking.Destination] {
	return func(yield func(string, *networking.Destination) bool) {
		for at, to := range destinationsAt(vs.Spec) {
			if !yield(at.String(), to) {
				return
			}
		}
	}
}

// PeerModeAt is how the proxies of the scope take connections at a port, and the PeerAuthentication that says so; nil
// when none does.
func (sc *Scope) PeerModeAt(port uint32) (PeerMode, *config.Object) {
	return decide(sc.PeerAuthentication.Items(), sc.Mesh.Config.GetRootNamespace()).at(port)
}
