package push

import (
	"maps"
	"slices"
	"strings"

	networking "istio.io/api/networking/v1alpha3"

	"github.com/ashore-mesh/ashore/registry"
)

// imported applies a Sidecar. It returns a group for each egress listener, and the services that
// the groups import or route to.
func (in viewIn) imported(all *visible) (groups []*Egress, called []*registry.Service) {
	hosts := map[string]bool{}
	for _, l := range egressListeners(in.sidecar.Spec) {
		patterns := ParseImports(l.Hosts, in.namespace)
		services := patterns.services(all)
		routes := in.meshRoutes(patterns.route)
		for _, s := range services {
			hosts[s.Host] = true
		}
		for _, vs := range routes.Items() {
			for d := range destinations(vs.Spec) {
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

// egressListeners returns the egress listeners of a Sidecar, or one that imports everything if it
// has none.
func egressListeners(s *networking.Sidecar) []*networking.IstioEgressListener {
	if len(s.Egress) == 0 {
		return []*networking.IstioEgressListener{{Hosts: []string{"*/*"}}}
	}
	return s.Egress
}

// Imports are the "namespace/host" patterns of a Sidecar's egress listener or of a Gateway's
// server: hosts by namespace. The namespace "*" stands for all. "~" before a namespace means that its
// hosts are left out.
type Imports map[string][]string

// ParseImports parses patterns. The namespace "." stands for namespace. A pattern without a
// namespace is for all, and so is the namespace "~".
// Source: istio.io, IstioEgressListener.hosts.
func ParseImports(patterns []string, namespace string) Imports {
	out := Imports{}
	for _, p := range patterns {
		ns, host, ok := strings.Cut(p, "/")
		if !ok {
			ns, host = "*", p
		}
		switch ns {
		case "~":
			ns = "~*"
		case ".", "~.":
			ns = strings.TrimSuffix(ns, ".") + namespace
		}
		out[ns] = append(out[ns], host)
	}
	return out
}

// services lists the services that the patterns import.
func (im Imports) services(all *visible) []*registry.Service {
	if slices.Equal(slices.Collect(maps.Keys(im)), []string{"*"}) && slices.Contains(im["*"], "*") {
		return all.list.Items()
	}
	var out []*registry.Service
	for _, s := range all.list.Items() {
		if im.Cover(s.Namespace, s.Host) {
			out = append(out, s)
		}
	}
	return out
}

// route reports whether the patterns import a VirtualService: one of its hosts is enough.
func (im Imports) route(vs *VirtualService) bool {
	return slices.ContainsFunc(vs.Spec.Hosts, func(h string) bool { return im.Cover(vs.Object.Namespace, h) })
}

// Cover reports whether a pattern covers a host of a namespace, and none leaves it out. It is enough
// if it covers a part of a wildcard host; all of it is left out or nothing.
func (im Imports) Cover(namespace, host string) bool {
	contains := func(pattern string) bool {
		suffix, wild := strings.CutPrefix(pattern, "*")
		return pattern == host || wild && strings.HasSuffix(host, suffix)
	}
	if slices.ContainsFunc(im["~"+namespace], contains) || slices.ContainsFunc(im["~*"], contains) {
		return false
	}
	overlaps := func(pattern string) bool { return HostsOverlap(pattern, host) }
	return slices.ContainsFunc(im[namespace], overlaps) || slices.ContainsFunc(im["*"], overlaps)
}

// HostsOverlap reports whether a host can match both patterns. Each pattern is a name, "*.suffix"
// or "*".
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
