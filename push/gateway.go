package push

import (
	"cmp"
	"slices"
	"strings"

	networking "istio.io/api/networking/v1alpha3"

	"github.com/ashore-mesh/ashore/config"
	"github.com/ashore-mesh/ashore/internal/intern"
	"github.com/ashore-mesh/ashore/internal/pmap"
	"github.com/ashore-mesh/ashore/registry"
)

// gateways is the index of Gateway objects.
type gateways struct {
	byKey pmap.Map[config.Key, *config.Object]
}

// selecting returns the Gateways that select n, sorted by CompareAge. An empty selector selects
// every router.
// Source: istio.io, Gateway: the selector is matched in all namespaces
// (PILOT_SCOPE_GATEWAY_TO_NAMESPACE is off).
func (x gateways) selecting(n Node) []*config.Object {
	if n.Type != Router {
		return nil
	}
	var out []*config.Object
	for _, o := range x.byKey.All() {
		if selects(o.Spec.(*networking.Gateway).Selector, n.Labels) {
			out = append(out, o)
		}
	}
	slices.SortFunc(out, CompareAge)
	return out
}

// portTarget is a port of a router's own service, and the port at which the router listens for it.
type portTarget struct{ number, target uint32 }

// targetPorts returns the ports of a router's own services for which it listens at another port,
// sorted by number.
// Source: Istio. Of several services with one port it uses the first, which is the oldest here.
func (c *Context) targetPorts(n Node) *intern.List[portTarget] {
	in := c.inboundOf(n)
	slices.SortStableFunc(in, func(a, b Inbound) int {
		return cmp.Or(
			cmp.Compare(a.Port.Number,
				b.Port.Number), a.Service.CompareAge(b.Service), a.Service.Key.Compare(b.Service.Key))
	})
	in = slices.DeleteFunc(in, func(i Inbound) bool { return i.Port.Protocol == registry.UDP })
	in = slices.CompactFunc(in, func(a, b Inbound) bool { return a.Port.Number == b.Port.Number })
	var out []portTarget
	for _, i := range in {
		if i.TargetPort != i.Port.Number {
			out = append(out, portTarget{i.Port.Number, i.TargetPort})
		}
	}
	return c.tables.targets.Of(out)
}

// listenPort returns the port at which a router listens for a server: its targetPort, or else the
// port to which the router's own service maps its port, or else the port itself.
func listenPort(s *networking.Server, targets []portTarget) uint32 {
	//nolint:staticcheck // deprecated in Istio
	if p := s.GetPort().GetTargetPort(); p != 0 {
		return p
	}
	n := s.GetPort().GetNumber()
	for _, t := range targets {
		if t.number == n {
			return t.target
		}
	}
	return n
}

// Forwards reports whether a server of a Gateway forwards TLS connections to s by SNI: an
// AUTO_PASSTHROUGH server that has the host of s, which is part of the mesh and not a wildcard.
// Source: istio.io, ServerTLSSettings. "namespace/host" means services of that namespace.
func Forwards(gateway *config.Object, server *networking.Server, s *registry.Service) bool {
	if server.GetTls().GetMode() != networking.ServerTLSSettings_AUTO_PASSTHROUGH || s.External ||
		strings.HasPrefix(s.Host, "*") {
		return false
	}
	return slices.ContainsFunc(server.Hosts, func(h string) bool {
		namespace, host, found := strings.Cut(h, "/")
		if !found {
			namespace, host = "*", h
		}
		return visibleTo([]string{namespace}, gateway.Namespace, s.Namespace) && HostsOverlap(host, s.Host)
	})
}

// forwardedBy returns the services to which gateway servers forward connections, sorted by host.
func forwardedBy(all *visible, servers *intern.List[GatewayServer]) []*registry.Service {
	var out []*registry.Service
	for _, s := range all.list.Items() {
		if slices.ContainsFunc(servers.Items(), func(g GatewayServer) bool { return Forwards(g.Gateway, g.Server, s) }) {
			out = append(out, s)
		}
	}
	return out
}

// newServerView returns the servers of Gateways with the VirtualServices that are bound to each and
// that the namespace of the router sees.
func newServerView(in serverViewIn) *serverView {
	var out []GatewayServer
	for _, o := range in.gateways.Items() {
		name := o.Namespace + "/" + o.Name
		bound := func(vs *VirtualService) bool { return vs.boundTo(name) }
		routes := in.tables.routes.Of(in.routes.visible(in.namespace, bound))
		for _, s := range o.Spec.(*networking.Gateway).Servers {
			port := listenPort(s, in.targets.Items())
			out = append(out, GatewayServer{Gateway: o, Server: s, Port: port, Routes: routes})
		}
	}
	return &serverView{in.tables.servers.Of(out)}
}
