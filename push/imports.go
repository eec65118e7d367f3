package push

import (
	"maps"
	"slices"
	"strings"

	networking "istio.io/api/networking/v1alpha3"

	"github.com/ashore-mesh/ashore/registry"
)

// imported applies a Sidecar. It returns a group for each egress listener, and every service that
// the groups import or route to.
func (in viewIn) imported(all *visible) (groups []*Egress, called []*registry.Service) {
	hosts := map[string]bool{}
	for _, l := range egressListeners(in.sidecar.Spec) {
		patterns := parseImports(l.Hosts, in.namespace)
		services := patterns.services(all)
		routes := in.meshRoutes(patterns.route)
		for _, s := range services {
			hosts[s.Host] = true
		}
		for _, vs := range routes.Items() {
			for d := range destinationsOf(vs.Spec) {
				hosts[d.Host] = true
			}
		}
		e := Egress{Services: in.tables.services.Of(services), Routes: routes}
		if l.Port != nil || l.Bind != "" || l.CaptureMode != networking.CaptureMode_DEFAULT {
			e.Listener = l
		}
		groups = append(groups, in.tables.egressOf.Get(e))
	}
	return groups, pick(all, hosts)
}

// egressListeners are those of the Sidecar, or one that imports everything when it has none.
func egressListeners(s *networking.Sidecar) []*networking.IstioEgressListener {
	if len(s.Egress) == 0 {
		return []*networking.IstioEgressListener{{Hosts: []string{"*/*"}}}
	}
	return s.Egress
}

// imports are the "namespace/host" patterns of an egress listener: hosts by namespace, "*" for any.
type imports map[string][]string

// parseImports reads patterns; "." is the namespace of the proxy, "~" imports nothing.
func parseImports(patterns []string, namespace string) imports {
	out := imports{}
	for _, p := range patterns {
		ns, host, _ := strings.Cut(p, "/")
		switch ns {
		case "~":
			continue
		case ".":
			ns = namespace
		}
		out[ns] = append(out[ns], host)
	}
	return out
}

// services lists those of all that the patterns import.
func (im imports) services(all *visible) []*registry.Service {
	if slices.Equal(slices.Collect(maps.Keys(im)), []string{"*"}) && slices.Contains(im["*"], "*") {
		return all.list.Items()
	}
	var out []*registry.Service
	for _, s := range all.list.Items() {
		if im.covers(s.Namespace, s.Host) {
			out = append(out, s)
		}
	}
	return out
}

// route reports whether the patterns import a VirtualService: one of its hosts is enough.
func (im imports) route(vs *VirtualService) bool {
	return slices.ContainsFunc(vs.Spec.Hosts, func(h string) bool { return im.covers(vs.Object.Namespace, h) })
}

func (im imports) covers(namespace, host string) bool {
	matches := func(pattern string) bool { return HostsOverlap(pattern, host) }
	return slices.ContainsFunc(im[namespace], matches) || slices.ContainsFunc(im["*"], matches)
}

// HostsOverlap reports whether some host matches both patterns; each is a name, "*.suffix" or "*".
func HostsOverlap(a, b string) bool {
	if a == b || a == "*" || b == "*" {
		return true
	}
	wildA, wildB := strings.HasPrefix(a, "*"), strings.HasPrefix(b, "*")
	switch {
	case wildA && wildB:
		return strings.HasSuffix(a[1:], b[1:]) || strings.HasSuffix(b[1:], a[1:])
	case wildA:
		return strings.HasSuffix(b, a[1:])
	case wildB:
		return strings.HasSuffix(a, b[1:])
	default:
		return false
	}
}
