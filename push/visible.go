package push

import (
	"iter"
	"slices"

	"github.com/ashore-mesh/ashore/internal/intern"
	"github.com/ashore-mesh/ashore/registry"
)

// exportTo is the exportTo of an object, else the mesh's default, else everyone.
func exportTo(own, fallback []string) []string {
	if len(own) > 0 {
		return own
	}
	if len(fallback) > 0 {
		return fallback
	}
	return []string{"*"}
}

// visibleTo reports whether something of namespace from, exported to those in to, is seen in
// namespace client. The empty client stands for all namespaces that see nothing special.
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

// addSpecial marks the namespaces that see something which others do not.
func addSpecial(special map[string]bool, own, fallback []string, from string) {
	for _, ns := range audience(exportTo(own, fallback), from) {
		if ns != "" {
			special[ns] = true
		}
	}
}

// audience lists the namespaces that see what is exported from a namespace to those in to; the
// empty one alone stands for all of them.
func audience(to []string, from string) []string {
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

// serviceView are all services, ordered for look-ups. Made from the whole map when it changed.
type serviceView struct {
	in serviceViewIn
	// special are the namespaces that see a service that others do not see.
	special map[string]bool
}

type serviceViewIn struct {
	mesh     *Mesh
	services Services
}

func newServiceView(in serviceViewIn) *serviceView {
	v := &serviceView{in: in, special: map[string]bool{}}
	var before registry.Key
	for k, s := range in.services.All() {
		addSpecial(v.special, s.ExportTo, in.mesh.Config.GetDefaultServiceExportTo(), k.Namespace)
		if k.Host == before.Host && before.Namespace != "" {
			// one host in two namespaces: each prefers its own
			v.special[before.Namespace], v.special[k.Namespace] = true, true
		}
		before = k
	}
	return v
}

// visible lists the services that namespace sees, sorted by host, hosts unique: of several services
// of one host its own is used, then a declared one, then the older, then the first by namespace.
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

// find returns the service of exactly that host which visible lists for namespace, nil when it
// lists none.
func (v *serviceView) find(namespace, host string) *registry.Service {
	var out *registry.Service
	for s := range v.of(host) {
		if v.sees(namespace, s) && (out == nil || prefer(s, out, namespace)) {
			out = s
		}
	}
	return out
}

// of yields the services of exactly that host, in all namespaces.
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
	return visibleTo(exportTo(s.ExportTo, v.in.mesh.Config.GetDefaultServiceExportTo()), s.Namespace, namespace)
}

// prefer reports whether namespace uses s rather than other, which has the same host.
func prefer(s, other *registry.Service, namespace string) bool {
	if own := s.Namespace == namespace; own || other.Namespace == namespace {
		return own
	}
	if d := s.Declared(); !s.Relayed && !other.Relayed && d != other.Declared() {
		return d
	}
	return s.CompareAge(other) < 0
}
