package push

import (
	"iter"
	"slices"

	"github.com/ashore-mesh/ashore/internal/intern"
	"github.com/ashore-mesh/ashore/registry"
)

// exportTo returns the exportTo of an object, or else the mesh's default, or else all namespaces.
func exportTo(declared, fallback []string) []string {
	if len(declared) > 0 {
		return declared
	}
	if len(fallback) > 0 {
		return fallback
	}
	return []string{"*"}
}

// visibleTo reports whether namespace client sees an object of namespace from with exportTo to. An
// empty client stands for all namespaces without their own view.
func visibleTo(to []string, from, client string) bool {
	for _, t := range to {
		switch t {
		case "*":
			return true
		case ".":
			if client == from {
				return true
			}
		case client:
			if client != "" {
				return true
			}
		}
	}
	return false
}

// addNamespacesWithOwnView adds the namespaces that see an object of namespace from with exportTo to,
// unless all do.
func addNamespacesWithOwnView(set map[string]bool, to []string, from string) {
	for _, ns := range exportedTo(to, from) {
		if ns != "" {
			set[ns] = true
		}
	}
}

// exportedTo returns the namespaces that see an object of namespace from with exportTo to. One
// empty name means all namespaces.
func exportedTo(to []string, from string) []string {
	if slices.Contains(to, "*") {
		return []string{""}
	}
	var out []string
	for _, t := range to {
		switch t {
		case ".":
			out = append(out, from)
		case "~":
		default:
			out = append(out, t)
		}
	}
	return out
}

// selects reports whether labels has every pair of want. An empty want selects everything.
func selects(want map[string]string, labels *intern.List[Label]) bool {
	for k, v := range want {
		if !slices.Contains(labels.Items(), Label{k, v}) {
			return false
		}
	}
	return true
}

// serviceView looks up services. It is built from the whole map whenever that changes.
type serviceView struct {
	in serviceViewIn
	// namespacesWithOwnView are the namespaces that see a service that other namespaces do not see.
	namespacesWithOwnView map[string]bool
	// clusters are the clusters of Kubernetes that services are from.
	clusters map[string]bool
}

type serviceViewIn struct {
	mesh     *Mesh
	services Services
}

func newServiceView(in serviceViewIn) *serviceView {
	v := &serviceView{in: in, namespacesWithOwnView: map[string]bool{}, clusters: map[string]bool{}}
	var before registry.Key
	for k, s := range in.services.All() {
		addNamespacesWithOwnView(v.namespacesWithOwnView, v.exportTo(s), k.Namespace)
		if s.Cluster != "" {
			v.clusters[s.Cluster] = true
		}
		for id := range s.OtherAddresses {
			v.clusters[id] = true
		}
		if k.Host == before.Host && before.Namespace != "" {
			// One host in two namespaces: each prefers its own service.
			v.namespacesWithOwnView[before.Namespace], v.namespacesWithOwnView[k.Namespace] = true, true
		}
		before = k
	}
	return v
}

// visible returns the services that namespace sees, sorted by host, one for each host. Of several
// it returns that of the namespace, then a declared one, then the older one; ties are broken by
// namespace.
func (v *serviceView) visible(namespace string) []*registry.Service {
	out := make([]*registry.Service, 0, v.in.services.Len())
	for _, s := range v.in.services.All() {
		if !v.sees(namespace, s) {
			continue
		}
		last := len(out) - 1
		if last < 0 || out[last].Host != s.Host {
			out = append(out, s)
			continue
		}
		if prefer(s, out[last], namespace) {
			out[last] = s
		}
	}
	return out
}

// find returns the service with exactly that host that visible returns for namespace, or nil if
// there is none.
func (v *serviceView) find(namespace, host string) *registry.Service {
	var out *registry.Service
	for s := range v.of(host) {
		if v.sees(namespace, s) && (out == nil || prefer(s, out, namespace)) {
			out = s
		}
	}
	return out
}

// of yields the services with exactly that host, in all namespaces.
func (v *serviceView) of(host string) iter.Seq[*registry.Service] {
	return func(yield func(*registry.Service) bool) {
		for k, s := range v.in.services.From(registry.Key{Host: host}) {
			if k.Host != host || !yield(s) {
				return
			}
		}
	}
}

// sees reports whether s is exported to namespace.
func (v *serviceView) sees(namespace string, s *registry.Service) bool {
	return visibleTo(v.exportTo(s), s.Namespace, namespace)
}

func (v *serviceView) exportTo(s *registry.Service) []string {
	return exportTo(s.ExportTo, v.in.mesh.Config.GetDefaultServiceExportTo())
}

// prefer reports whether namespace uses s rather than other, which has the same host.
func prefer(s, other *registry.Service, namespace string) bool {
	if here := s.Namespace == namespace; here || other.Namespace == namespace {
		return here
	}
	if d := s.Declared; !s.Relayed && !other.Relayed && d != other.Declared {
		return d
	}
	return s.CompareAge(other) < 0
}
