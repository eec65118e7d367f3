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

// The look-ups in this file decide what proxies see. Package analyze uses the same ones.

// VirtualServices yields all VirtualServices that have hosts, with every short name in them
// resolved.
func (c *Context) VirtualServices() iter.Seq[*VirtualService] {
	return func(yield func(*VirtualService) bool) {
		for _, vs := range c.virtual.byKey.All() {
			if !yield(vs) {
				return
			}
		}
	}
}

// ServiceFor returns the service that clients in a namespace reach by exactly this host, or nil if
// there is none. An empty namespace stands for all namespaces without their own view.
func (c *Context) ServiceFor(namespace, host string) *registry.Service {
	return c.cache.services().find(namespace, host)
}

// RuleFor returns the DestinationRule that clients in a namespace apply to s, or nil if there is
// none. It includes all rules with a workloadSelector, as if a client had all labels.
func (c *Context) RuleFor(namespace string, s *registry.Service) *DestinationRule {
	v := c.cache.rules()
	return v.find(namespace, s, v.selective[namespace])
}

// ClientNamespaces returns, sorted, the namespaces with their own view of services or rules. The
// first entry, empty, stands for all other namespaces.
func (c *Context) ClientNamespaces() []string {
	out := map[string]bool{"": true}
	maps.Copy(out, c.cache.services().namespacesWithOwnView)
	maps.Copy(out, c.cache.rules().namespacesWithOwnView)
	return slices.Sorted(maps.Keys(out))
}

// ExportedTo returns the namespaces that o, a VirtualService or a DestinationRule, is exported to.
// One empty name means all namespaces; an empty list means none.
func (c *Context) ExportedTo(o *config.Object) []string {
	var to []string
	switch spec := o.Spec.(type) {
	case *networking.VirtualService:
		to = exportTo(spec.ExportTo, c.in.Mesh.Config.GetDefaultVirtualServiceExportTo())
	case *networking.DestinationRule:
		if ruleSelector(o) != nil {
			return []string{o.Namespace}
		}
		to = exportTo(spec.ExportTo, c.in.Mesh.Config.GetDefaultDestinationRuleExportTo())
	}
	return exportedTo(to, o.Namespace)
}

// ServiceExportedTo returns the namespaces that a service is exported to, as ExportedTo does.
func (c *Context) ServiceExportedTo(s *registry.Service) []string {
	return exportedTo(c.cache.services().exportTo(s), s.Namespace)
}

// CompareRoutes orders VirtualServices by precedence: the narrower exportTo wins, then the older
// object; ties are broken by namespace and name.
func CompareRoutes(a, b *VirtualService) int {
	return cmp.Or(cmp.Compare(a.exportRank(), b.exportRank()), CompareAge(a.Object, b.Object))
}

// Destinations yields all destinations of a VirtualService and of its delegates, with the field of
// each.
func (vs *VirtualService) Destinations() iter.Seq2[Field, *networking.Destination] {
	return func(yield func(Field, *networking.Destination) bool) {
		for at, to := range destinationFields(vs.own) {
			if !yield(Field{vs.Object, at.String()}, to) {
				return
			}
		}
		for _, d := range vs.Delegates {
			for at, to := range d.Destinations() {
				if !yield(at, to) {
					return
				}
			}
		}
	}
}

// PeerModeOf returns the mTLS mode of an endpoint's port, and the PeerAuthentication that sets the
// mode. The object is nil if the mode is the default.
func (c *Context) PeerModeOf(ep *registry.Endpoint, port uint32) (PeerMode, *config.Object) {
	root := c.in.Mesh.Config.GetRootNamespace()
	return decide(c.peerPolicies().Of(ep.Namespace, ep.Labels), root).at(port)
}

// PeerModeAt returns the mTLS mode of a port of the proxy, and the PeerAuthentication that sets the
// mode. The object is nil if the mode is the default.
func (sc *Scope) PeerModeAt(port uint32) (PeerMode, *config.Object) {
	return decide(sc.PeerAuthentication.Items(), sc.Mesh.Config.GetRootNamespace()).at(port)
}
