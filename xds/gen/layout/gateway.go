package layout

import (
	"cmp"
	"slices"
	"strconv"
	"strings"

	networking "istio.io/api/networking/v1alpha3"

	"github.com/ashore-mesh/ashore/config"
	"github.com/ashore-mesh/ashore/internal/intern"
	"github.com/ashore-mesh/ashore/push"
	"github.com/ashore-mesh/ashore/registry"
	"github.com/ashore-mesh/ashore/xds/gen/envoy"
)

// GatewayServer is one server of a Gateway. It has no routes, so a changed route does not change
// the layout.
type GatewayServer struct {
	Gateway *config.Object
	Server  *networking.Server
	// port is where the router listens for the server.
	port uint32
}

// gatewayIn is all that the layout of a router's listeners depends on.
type gatewayIn struct {
	// servers are those of push.Facets.Gateways, in the same order.
	servers  *intern.List[GatewayServer]
	families envoy.Families
}

// Gateway lists the listeners and the route configurations of a router. Both are generated from it.
// Immutable.
type Gateway struct {
	// Servers are the input.
	Servers *intern.List[GatewayServer]
	// Ports is sorted by address.
	Ports []GatewayPort
	// Routes is sorted by name. Names are unique.
	Routes []gatewayRoute
}

// GatewayPort is one listener of a router.
type GatewayPort struct {
	At envoy.Address
	// Servers are those that share the port, in order of precedence. Either all are plain HTTP, or
	// all are TLS, or there is one TCP server.
	Servers []GatewayUse
}

// GatewayUse is one server of a port.
type GatewayUse struct {
	// Index is the server's index in push.Facets.Gateways.
	Index int
	Mode  gatewayMode
	// Route is the name of its route configuration; empty if it forwards connections.
	Route string
	// Sni are its hosts, without namespaces; "*" matches every client.
	Sni []string
}

// gatewayMode is what a server does with connections.
type gatewayMode uint8

const (
	// GatewayHTTP is plaintext HTTP.
	GatewayHTTP gatewayMode = iota
	// GatewayHTTPS terminates TLS and routes HTTP.
	GatewayHTTPS
	// GatewayTLS terminates TLS and forwards connections.
	GatewayTLS
	// GatewayPassthrough routes TLS connections by SNI and does not terminate TLS.
	GatewayPassthrough
	// GatewayForward forwards the mesh's mutual TLS to the service that its SNI names.
	GatewayForward
	// GatewayTCP forwards connections.
	GatewayTCP
)

// isTLS reports whether clients use TLS, so that several servers can share a port by SNI.
func (m gatewayMode) isTLS() bool { return m != GatewayHTTP && m != GatewayTCP }

// gatewayRoute is one route configuration of a router.
type gatewayRoute struct {
	Name string
	// Servers are the indexes in push.Facets.Gateways of the servers that share the route
	// configuration, in order of precedence. They share a port.
	Servers []int
}

// gatewayServers returns a router's servers without their routes.
func gatewayServers(lists *intern.Lists[GatewayServer], sc *push.Scope) *intern.List[GatewayServer] {
	out := make([]GatewayServer, 0, sc.Gateways.Len())
	for _, g := range sc.Gateways.Items() {
		out = append(out, GatewayServer{g.Gateway, g.Server, g.Port})
	}
	return lists.Of(out)
}

// gatewayInOf returns what the layout depends on.
func gatewayInOf(lists *intern.Lists[GatewayServer], sc *push.Scope) gatewayIn {
	return gatewayIn{servers: gatewayServers(lists, sc), families: envoy.FamiliesOf(sc)}
}

// layOutGateways merges the servers of all Gateways of a router by address and port.
//
// Source: Istio. The first server of a port decides whether the port is plain HTTP, TLS or TCP.
// Later servers of another kind are left out, and so is a second TCP server. Plain HTTP servers
// share one route configuration. TLS servers are distinguished by SNI. A TLS server that repeats a
// host of an earlier one is left out.
func layOutGateways(in gatewayIn) *Gateway {
	out := &Gateway{Servers: in.servers}
	at := map[envoy.Address]int{}
	routes := map[string]int{}
	for i, s := range in.servers.Items() {
		use, ok := useOf(i, s)
		if !ok {
			continue
		}
		a := gatewayAddress(s, in.families)
		n, known := at[a]
		if known && out.Ports[n].conflicts(use) {
			continue // package analyze reports it
		}
		if use.Mode == GatewayHTTPS {
			if _, taken := routes[use.Route]; taken {
				continue // two servers of one Gateway with one port name: refused by validation
			}
		}
		if !known {
			n = len(out.Ports)
			at[a] = n
			out.Ports = append(out.Ports, GatewayPort{At: a})
		}
		if use.Mode == GatewayHTTP && known {
			use.Route = out.Ports[n].Servers[0].Route // equal even if bind is written differently
		}
		out.Ports[n].Servers = append(out.Ports[n].Servers, use)
		if use.Route == "" {
			continue
		}
		r, known := routes[use.Route]
		if !known {
			r = len(out.Routes)
			routes[use.Route] = r
			out.Routes = append(out.Routes, gatewayRoute{Name: use.Route})
		}
		out.Routes[r].Servers = append(out.Routes[r].Servers, i)
	}
	slices.SortFunc(out.Ports, func(a, b GatewayPort) int { return a.At.Compare(b.At) })
	slices.SortFunc(out.Routes, func(a, b gatewayRoute) int { return cmp.Compare(a.Name, b.Name) })
	return out
}

// conflicts reports whether a server of p cannot share the port with use.
func (p *GatewayPort) conflicts(use GatewayUse) bool {
	first := p.Servers[0].Mode
	if !use.Mode.isTLS() || !first.isTLS() {
		return use.Mode != GatewayHTTP || first != GatewayHTTP
	}
	return slices.ContainsFunc(p.Servers, func(o GatewayUse) bool {
		return slices.ContainsFunc(use.Sni, func(h string) bool { return slices.Contains(o.Sni, h) })
	})
}

// useOf returns what a server does, or false if it is not supported (UDP).
func useOf(index int, s GatewayServer) (GatewayUse, bool) {
	tls := s.Server.GetTls()
	protocol := envoy.ParseProtocol(s.Server.GetPort().GetProtocol())
	u := GatewayUse{Index: index}
	if tls != nil {
		u.Sni = SniHosts(s.Server.Hosts)
	}
	switch {
	case protocol == registry.UDP:
		return u, false
	case protocol.IsHTTP(): // its tls can only have httpsRedirect
		u.Mode, u.Sni, u.Route = GatewayHTTP, nil, plainRouteName(s)
	case tls == nil:
		u.Mode = GatewayTCP
	case tls.GetMode() == networking.ServerTLSSettings_PASSTHROUGH:
		u.Mode = GatewayPassthrough
	case tls.GetMode() == networking.ServerTLSSettings_AUTO_PASSTHROUGH:
		u.Mode = GatewayForward
	case protocol == registry.HTTPS:
		u.Mode, u.Route = GatewayHTTPS, tlsRouteName(s)
	default:
		u.Mode = GatewayTLS
	}
	return u, true
}

func gatewayAddress(s GatewayServer, f envoy.Families) envoy.Address {
	ip, path := envoy.ParseBind(s.Server.Bind)
	if path != "" {
		return envoy.Address{Path: path}
	}
	if !ip.IsValid() || f == envoy.DualStack && ip.IsUnspecified() { // one listener for both families
		ip = f.Wildcard()
	}
	return envoy.Address{IP: ip, Port: s.port}
}

// plainRouteName is "http.8080". Source: Istio, model.gatewayRDSRouteName; a bind address follows,
// as there.
func plainRouteName(s GatewayServer) string {
	return "http." + strconv.FormatUint(uint64(s.port), 10) + bindSuffix(s.Server)
}

// tlsRouteName is "https.443.portname.gateway.namespace", with the server's own port. Source:
// Istio, model.gatewayRDSRouteName; a bind address follows, as there.
func tlsRouteName(s GatewayServer) string {
	return strings.Join([]string{
		"https", strconv.FormatUint(uint64(s.Server.GetPort().GetNumber()),
			10), s.Server.Port.Name, s.Gateway.Name, s.Gateway.Namespace,
	}, ".") + bindSuffix(s.Server)
}

func bindSuffix(s *networking.Server) string {
	if s.Bind == "" {
		return ""
	}
	return "." + s.Bind
}

// SniHosts returns the hosts of a server without the prefix "namespace/" and without duplicates, in
// order.
func SniHosts(hosts []string) []string {
	out := make([]string, 0, len(hosts))
	for _, h := range hosts {
		if _, host, ok := strings.Cut(h, "/"); ok {
			h = host
		}
		if !slices.Contains(out, h) {
			out = append(out, h)
		}
	}
	return out
}
