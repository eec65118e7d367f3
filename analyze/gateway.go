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
	// admits are the hosts that it serves, with the namespaces of their VirtualServices.
	admits hostSet
}

// listenPort is where servers meet: a port of the proxies that a selector selects. Comparable.
type listenPort struct {
	selector string // labels in a fixed order
	bind     string // empty: all addresses
	port     uint32
}

// String is the place without the selector.
func (p listenPort) String() string {
	return strings.TrimSpace(fmt.Sprintf("port %d %s", p.port, p.bind))
}

// allGateways are all Gateways by "namespace/name".
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
				at.port = 0 // a socket has no port
			}
			g.servers = append(g.servers, server{i, s, at, admittedHosts(o, s)})
		}
		a.gateways[o.Namespace+"/"+o.Name] = g
	}
	return a.gateways
}

// labelsKey is a set of labels as one text.
func labelsKey(labels map[string]string) string {
	var b strings.Builder
	for _, k := range slices.Sorted(maps.Keys(labels)) {
		b.WriteString(strconv.Quote(k) + strconv.Quote(labels[k]))
	}
	return b.String()
}

// bindAddress writes an address in one form; that of all addresses is empty.
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

// portOf is where a server listens, unless a service of its proxies maps the port.
func portOf(s *networking.Server) uint32 {
	//nolint:staticcheck // deprecated in Istio
	if p := s.GetPort().GetTargetPort(); p != 0 {
		return p
	}
	return s.GetPort().GetNumber()
}

// admittedHosts reads "namespace/host" patterns of a server. One without a namespace is for any.
func admittedHosts(o *config.Object, s *networking.Server) hostSet {
	out := hostSet{}
	for _, h := range s.Hosts {
		if !strings.Contains(h, "/") {
			h = "*/" + h
		}
		out.add(strings.ToLower(h), o.Namespace)
	}
	return out
}

// takes is the kind of routes that a server takes: "http", "tcp" or "tls". Package gen makes listeners in that way.
func (s server) takes() string {
	protocol, _ := registry.ParseProtocol(s.spec.GetPort().GetProtocol())
	mode := s.spec.GetTls().GetMode()
	switch {
	case protocol.IsHTTP():
		return "http"
	case s.spec.Tls == nil:
		return "tcp"
	case mode == networking.ServerTLSSettings_PASSTHROUGH || mode == networking.ServerTLSSettings_AUTO_PASSTHROUGH:
		return "tls"
	case protocol == registry.HTTPS:
		return "http"
	default:
		return "tcp"
	}
}

// boundGateways checks that the Gateways of a VirtualService exist, admit its hosts and take its routes.
func (a *analysis) boundGateways(vs *push.VirtualService) {
	admitted, every := map[string]bool{}, true // hosts that some Gateway admits; all names were Gateways that exist
	for i, name := range vs.Spec.Gateways {
		field := fmt.Sprintf("spec.gateways[%d]", i)
		g := a.allGateways()[name]
		if g == nil {
			every = false
			if name != meshGateway {
				a.report(ReferenceNotFound, vs.Object, field,
					fmt.Sprintf("there is no Gateway %s, so the hosts are not served there", name),
					"use the name of one that exists"+a.similar(name, slices.Sorted(maps.Keys(a.gateways)))+
						", with its namespace in front, or declare it")
			}
			continue
		}
		some, taken := false, map[string]bool{}
		for _, s := range g.servers {
			for _, h := range vs.Spec.Hosts {
				if s.admits.covers(vs.Object.Namespace, strings.ToLower(h)) {
					admitted[h], some, taken[s.takes()] = true, true, true
				}
			}
		}
		if !some {
			every = false
			a.report(HostNotInGateway, vs.Object, field,
				fmt.Sprintf("no server of %s admits %s from namespace %s, so nothing is served there",
					g.object.Key, few(vs.Spec.Hosts), vs.Object.Namespace),
				fmt.Sprintf("correct spec.hosts, or add the host to a server of the Gateway, which admits %s",
					g.hostsText()))
			continue
		}
		a.servedKinds(vs, g, field, taken)
	}
	for i, h := range vs.Spec.Hosts {
		if every && !admitted[h] {
			a.report(HostNotInGateway, vs.Object, fmt.Sprintf("spec.hosts[%d]", i),
				fmt.Sprintf("no server of %s admits %s from namespace %s, so it is not served",
					few(vs.Spec.Gateways), h, vs.Object.Namespace),
				"correct the host, or add it to a server")
		}
	}
}

// servedKinds checks that a Gateway takes some kind of routes that the VirtualService has.
func (a *analysis) servedKinds(vs *push.VirtualService, g *gateway, field string, taken map[string]bool) {
	has := map[string]bool{"http": len(vs.Spec.Http) > 0, "tcp": len(vs.Spec.Tcp) > 0, "tls": len(vs.Spec.Tls) > 0}
	for kind := range taken {
		if has[kind] {
			return
		}
	}
	want := strings.Join(slices.Sorted(maps.Keys(taken)), " or ")
	a.report(UnservedRoutes, vs.Object, field,
		fmt.Sprintf("the servers of %s that admit these hosts take %s routes, and the VirtualService has "+
			"none, so nothing is served there", g.object.Key, want),
		"write "+want+" routes, or add a server with another protocol or tls.mode")
}

// hostsText lists what the servers admit as it is written, each once.
func (g *gateway) hostsText() string {
	var out []string
	for _, s := range g.servers {
		out = append(out, s.spec.Hosts...)
	}
	slices.Sort(out)
	return few(slices.Compact(out))
}

// gatewayConflicts finds servers that are left out because another server on the same port of the same proxies comes
// first.
//
// Source: Istio. The first server of a port decides whether it is plain HTTP, TLS or TCP. A second TCP server is left
// out, and so is one with TLS that repeats a host. Package gen makes listeners in that way.
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
		hosts := map[string]member{} // of the servers that are used; only those with TLS are told apart by host
		for _, m := range members {
			other, why := first, ""
			switch family := m.family(); {
			case family != first.family():
				why = fmt.Sprintf("%s and %s cannot share a port", family, first.family())
			case family == "TCP" && m.spec != first.spec:
				why = "connections without TLS cannot be told apart by host"
			case family == "TLS":
				for _, h := range m.plainHosts() {
					if o, twice := hosts[h]; twice && why == "" {
						other, why = o, "it has host "+h+" too"
					}
				}
			}
			if why == "" {
				for _, h := range m.plainHosts() {
					hosts[h] = m
				}
				continue
			}
			a.report(ConflictingGateways, m.object, fmt.Sprintf("spec.servers[%d]", m.index),
				fmt.Sprintf("the server on %s is left out, because spec.servers[%d] of %s listens there and "+
					"comes first, by age or by name, and %s",
					m.port, other.index, named(other.object), why),
				"use another port or other hosts, or select different proxies")
		}
	}
}

// family is what servers must have in common to share a port.
func (s server) family() string {
	protocol, _ := registry.ParseProtocol(s.spec.GetPort().GetProtocol())
	switch {
	case protocol.IsHTTP():
		return "HTTP"
	case s.spec.Tls == nil:
		return "TCP"
	default:
		return "TLS"
	}
}

// plainHosts are the hosts of a server without namespaces.
func (s server) plainHosts() []string {
	out := slices.Clone(s.spec.Hosts)
	for i, h := range out {
		out[i] = h[strings.IndexByte(h, '/')+1:]
	}
	return out
}
