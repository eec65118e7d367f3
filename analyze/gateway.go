package analyze

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	networking "istio.io/api/networking/v1alpha3"

	"github.com/ashore-mesh/ashore/config"
	"github.com/ashore-mesh/ashore/push"
	"github.com/ashore-mesh/ashore/registry"
)

// gateway is a Gateway with its servers.
type gateway struct {
	object  *config.Object
	servers []server
}

// server is one server of a Gateway.
type server struct {
	index int
	spec  *networking.Server
	port  listenPort
	// hosts are the hosts that it accepts, with the namespaces of their VirtualServices.
	hosts push.Imports
}

// listenPort is where servers meet: a port of the proxies that a selector selects. Comparable.
type listenPort struct {
	selector string // labels in a fixed order
	bind     string // empty: all addresses
	port     uint32 // zero: bind is a Unix socket
}

// String returns "port 80", with the address if it is not all.
func (p listenPort) String() string {
	return strings.TrimSpace(fmt.Sprintf("port %d %s", p.port, p.bind))
}

// allGateways returns all Gateways by "namespace/name".
func (a *analysis) allGateways() map[string]*gateway {
	if a.gateways != nil {
		return a.gateways
	}
	a.gateways = map[string]*gateway{}
	for o := range a.objects(config.Gateway) {
		spec := o.Spec.(*networking.Gateway)
		g := &gateway{object: o}
		selector := labelsKey(spec.Selector)
		for i, s := range spec.Servers {
			at := listenPort{selector, bindAddress(s.Bind), portOf(s)}
			if strings.HasPrefix(s.Bind, "unix://") {
				at.port = 0
			}
			g.servers = append(g.servers, server{i, s, at, push.ParseImports(s.Hosts, o.Namespace)})
		}
		a.gateways[o.Namespace+"/"+o.Name] = g
	}
	return a.gateways
}

// labelsKey returns labels as one text.
func labelsKey(labels map[string]string) string {
	var b strings.Builder
	for _, k := range slices.Sorted(maps.Keys(labels)) {
		b.WriteString(strconv.Quote(k) + strconv.Quote(labels[k]))
	}
	return b.String()
}

// bindAddress returns an address in its canonical form, or an empty text for all addresses.
func bindAddress(bind string) string {
	ip, err := netip.ParseAddr(bind)
	switch {
	case err != nil:
		return bind
	case ip.Unmap().IsUnspecified():
		return ""
	default:
		return ip.Unmap().String()
	}
}

// portOf returns the port at which a server listens, unless a service of its proxies maps it.
func portOf(s *networking.Server) uint32 {
	//nolint:staticcheck // deprecated in Istio
	if p := s.GetPort().GetTargetPort(); p != 0 {
		return p
	}
	return s.GetPort().GetNumber()
}

func (s server) protocol() registry.Protocol {
	p, _ := registry.ParseProtocol(s.spec.GetPort().GetProtocol())
	return p
}

// accepts reports whether a server of the Gateway accepts a host of a VirtualService.
func (g *gateway) accepts(vs *push.VirtualService) bool {
	return slices.ContainsFunc(g.servers, func(s server) bool {
		return slices.ContainsFunc(vs.Spec.Hosts, func(h string) bool {
			return s.hosts.Cover(vs.Object.Namespace, h)
		})
	})
}

// boundGateways checks that the Gateways of a VirtualService exist, and that they accept its hosts.
func (a *analysis) boundGateways(vs *push.VirtualService) {
	for i, name := range vs.Spec.Gateways {
		if name == push.MeshGateway {
			continue
		}
		field := fmt.Sprintf("spec.gateways[%d]", i)
		g := a.allGateways()[name]
		switch {
		case g == nil:
			a.report(ReferenceNotFound, vs.Object, field,
				fmt.Sprintf("Gateway %s does not exist, so it does not serve these hosts", name),
				"use the name of one that exists"+a.similar(name, slices.Sorted(maps.Keys(a.gateways)))+
					", with its namespace in front, or declare it")
		case !g.accepts(vs):
			a.report(HostNotInGateway, vs.Object, field,
				fmt.Sprintf("no server of %s accepts host %s from namespace %s, so this VirtualService has no effect on "+
					"that Gateway", g.object.Key, few(vs.Spec.Hosts), vs.Object.Namespace),
				"change spec.hosts, or add the host to a server of the Gateway")
		}
	}
}

// gatewayConflicts reports servers that are ignored because another server on the same port of the
// same proxies takes precedence.
//
// Source: Istio. The first server of a port decides whether the port is plain HTTP, TLS or TCP. A
// second TCP server is ignored, and so is a server with TLS that repeats a host. xds/gen has the
// same rule.
func (a *analysis) gatewayConflicts() {
	type member struct {
		*gateway
		server
	}
	ports := map[listenPort][]member{}
	for _, name := range slices.Sorted(maps.Keys(a.allGateways())) {
		g := a.gateways[name]
		for _, s := range g.servers {
			ports[s.port] = append(ports[s.port], member{g, s})
		}
	}
	for _, members := range ports {
		slices.SortStableFunc(members, func(a, b member) int { return push.CompareAge(a.object, b.object) })
		first := members[0]
		byHost := map[string]member{} // the servers that are not ignored
		for _, m := range members {
			other, why := first, ""
			switch family := m.family(); {
			case family != first.family():
				why = fmt.Sprintf("%s and %s cannot share a port", family, first.family())
			case family == "TCP" && m.spec != first.spec:
				why = "connections without TLS cannot be told apart by host"
			case family == "TLS":
				for _, h := range m.plainHosts() {
					if o, twice := byHost[h]; twice && why == "" {
						other, why = o, "it has host "+h+" too"
					}
				}
			}
			if why == "" {
				for _, h := range m.plainHosts() {
					byHost[h] = m
				}
				continue
			}
			a.report(ConflictingGateways, m.object, fmt.Sprintf("spec.servers[%d]", m.index),
				fmt.Sprintf("server on %s is ignored: %s, and spec.servers[%d] of %s %s",
					m.port, why, other.index, named(other.object), precedence),
				"use another port or other hosts, or select different proxies")
		}
	}
}

// family returns what servers must have in common to share a port.
func (s server) family() string {
	switch {
	case s.protocol().IsHTTP():
		return "HTTP"
	case s.spec.Tls == nil:
		return "TCP"
	default:
		return "TLS"
	}
}

// plainHosts returns the hosts of a server without namespaces.
func (s server) plainHosts() []string {
	out := slices.Clone(s.spec.Hosts)
	for i, h := range out {
		out[i] = h[strings.IndexByte(h, '/')+1:]
	}
	return out
}
