package gen

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	networking "istio.io/api/networking/v1alpha3"

	"github.com/ashore-mesh/ashore/config"
	"github.com/ashore-mesh/ashore/internal/feed"
	"github.com/ashore-mesh/ashore/internal/intern"
	"github.com/ashore-mesh/ashore/push"
	"github.com/ashore-mesh/ashore/registry"
)

// gatewayServer is one server of a Gateway without its routes: a changed route leaves the layout
// alone.
type gatewayServer struct {
	gateway *config.Object
	server  *networking.Server
	// port is where the router listens for the server.
	port uint32
}

// gatewayIn is all that the layout of a router's listeners depends on.
type gatewayIn struct {
	// servers are those of Facets.Gateways, in their order.
	servers  *intern.List[gatewayServer]
	families families
}

// gatewayLayout says which address and port of a router carries what. Listeners and routes are both
// made from it. Immutable.
type gatewayLayout struct {
	// servers are those that it was made of.
	servers *intern.List[gatewayServer]
	// ports is sorted by address.
	ports []gatewayPort
	// routes is sorted by name, names unique.
	routes []gatewayRoute
}

// gatewayPort is one listener of a router.
type gatewayPort struct {
	at address
	// servers are those that share it, in order of precedence: either all plain HTTP, or all TLS,
	// or one TCP.
	servers []gatewayUse
	// problems name the servers that are left out because a service maps ports of the router.
	problems []feed.Problem
}

// gatewayUse is one server of a port.
type gatewayUse struct {
	// index is the server's in Facets.Gateways.
	index int
	mode  gatewayMode
	// route is its route configuration; empty: it routes connections.
	route string
	// sni are its hosts, without namespaces; "*" matches every client.
	sni []string
}

// gatewayMode is what a server does with connections.
type gatewayMode uint8

const (
	// gatewayHTTP is plaintext HTTP.
	gatewayHTTP gatewayMode = iota
	// gatewayHTTPS ends TLS and speaks HTTP inside.
	gatewayHTTPS
	// gatewayTLS ends TLS and forwards connections.
	gatewayTLS
	// gatewayPassthrough routes TLS connections by SNI, unopened.
	gatewayPassthrough
	// gatewayTCP forwards connections.
	gatewayTCP
)

// endsTLS says that the server holds a certificate.
func (m gatewayMode) endsTLS() bool { return m == gatewayHTTPS || m == gatewayTLS }

// isTLS says that clients speak TLS, so that SNI tells servers of one port apart.
func (m gatewayMode) isTLS() bool { return m.endsTLS() || m == gatewayPassthrough }

// gatewayRoute is one route configuration of a router.
type gatewayRoute struct {
	name string
	// servers are the indexes in Facets.Gateways of those that share it, in order of precedence;
	// the router listens for them on one port.
	servers []int
}

// gatewayServers strips the routes from a router's servers, for gatewayIn.
func gatewayServers(lists *intern.Lists[gatewayServer], sc *push.Scope) *intern.List[gatewayServer] {
	out := make([]gatewayServer, 0, sc.Gateways.Len())
	for _, g := range sc.Gateways.Items() {
		out = append(out, gatewayServer{g.Gateway, g.Server, g.Port})
	}
	return lists.Of(out)
}

// gatewayInOf picks what the layout depends on out of a scope.
func gatewayInOf(lists *intern.Lists[gatewayServer], sc *push.Scope) gatewayIn {
	return gatewayIn{servers: gatewayServers(lists, sc), families: familiesOf(sc)}
}

// layOutGateways merges the servers of all Gateways of a router by address and port.
//
// Source: Istio. The first server of a port says whether it is plain HTTP, TLS or TCP, and others
// that differ are left out, as is a second TCP server. Plain HTTP servers share one route
// configuration. TLS servers are told apart by SNI; one that repeats a host of an earlier one is
// left out.
func layOutGateways(in gatewayIn) *gatewayLayout {
	out := &gatewayLayout{servers: in.servers}
	at := map[address]int{}
	routes := map[string]int{}
	for i, s := range in.servers.Items() {
		use, ok := useOf(i, s)
		if !ok {
			continue
		}
		a := gatewayAddress(s, in.families)
		n, known := at[a]
		if known {
			if other := out.ports[n].conflict(use); other != nil {
				o := in.servers.Items()[other.index]
				if s.declaredPort() != o.declaredPort() { // else package push reports it
					out.ports[n].problems = append(out.ports[n].problems, s.leftOut(o))
				}
				continue
			}
		}
		if use.mode == gatewayHTTPS {
			if _, taken := routes[use.route]; taken {
				continue // two servers of one Gateway with one port name: refused by validation
			}
		}
		if !known {
			n = len(out.ports)
			at[a] = n
			out.ports = append(out.ports, gatewayPort{at: a})
		}
		if use.mode == gatewayHTTP && known {
			use.route = out.ports[n].servers[0].route // also where another Gateway spells bind another way
		}
		out.ports[n].servers = append(out.ports[n].servers, use)
		if use.route == "" {
			continue
		}
		r, known := routes[use.route]
		if !known {
			r = len(out.routes)
			routes[use.route] = r
			out.routes = append(out.routes, gatewayRoute{name: use.route})
		}
		out.routes[r].servers = append(out.routes[r].servers, i)
	}
	slices.SortFunc(out.ports, func(a, b gatewayPort) int { return a.at.compare(b.at) })
	slices.SortFunc(out.routes, func(a, b gatewayRoute) int { return cmp.Compare(a.name, b.name) })
	return out
}

// conflict returns a server with which use cannot share the port; nil: there is none.
func (p *gatewayPort) conflict(use gatewayUse) *gatewayUse {
	first := &p.servers[0]
	switch {
	case use.mode == gatewayHTTP && first.mode == gatewayHTTP:
		return nil
	case !use.mode.isTLS() || !first.mode.isTLS():
		return first
	}
	for i := range p.servers {
		if slices.ContainsFunc(use.sni, func(h string) bool { return slices.Contains(p.servers[i].sni, h) }) {
			return &p.servers[i]
		}
	}
	return nil
}

// declaredPort is where the server listens on a router whose services do not map its port.
func (s gatewayServer) declaredPort() uint32 {
	//nolint:staticcheck // deprecated in Istio
	return cmp.Or(s.server.GetPort().GetTargetPort(), s.server.GetPort().GetNumber())
}

// leftOut is the problem of a server that cannot share its port with other, which comes first.
func (s gatewayServer) leftOut(other gatewayServer) feed.Problem {
	i := slices.Index(s.gateway.Spec.(*networking.Gateway).Servers, s.server)
	return feed.Problem{
		Severity: feed.Error, Source: s.gateway.Origin.Source, Object: s.gateway.Key.String(),
		Field: fmt.Sprintf("spec.servers[%d]", i), File: s.gateway.Origin.File, Line: s.gateway.Origin.Line,
		Text: fmt.Sprintf("the server is left out on a gateway whose own service maps ports: "+
			"port %d of this server and port %d of %s both become port %d, and these servers cannot share a port: "+
			"choose another targetPort in the service, or another port or other hosts for a server",
			s.declaredPort(), other.declaredPort(), other.gateway.Key, s.port),
	}
}

// useOf says what a server does; false when it can do nothing (UDP).
func useOf(index int, s gatewayServer) (gatewayUse, bool) {
	tls := s.server.GetTls()
	protocol := parseProtocol(s.server.GetPort().GetProtocol())
	u := gatewayUse{index: index}
	if tls != nil {
		u.sni = sniHosts(s.server.Hosts)
	}
	passthrough := tls.GetMode() == networking.ServerTLSSettings_PASSTHROUGH ||
		tls.GetMode() == networking.ServerTLSSettings_AUTO_PASSTHROUGH
	switch {
	case protocol == registry.UDP:
		return u, false
	case protocol.IsHTTP(): // its tls can only ask for a redirection
		u.mode, u.sni, u.route = gatewayHTTP, nil, plainRouteName(s)
	case tls == nil:
		u.mode = gatewayTCP
	case passthrough:
		u.mode = gatewayPassthrough
	case protocol == registry.HTTPS:
		u.mode, u.route = gatewayHTTPS, tlsRouteName(s)
	default:
		u.mode = gatewayTLS
	}
	return u, true
}

func gatewayAddress(s gatewayServer, f families) address {
	ip, path := parseBind(s.server.Bind)
	if path != "" {
		return address{path: path}
	}
	if !ip.IsValid() || f == dualStack && ip.IsUnspecified() { // such a listener has both
		ip = f.wildcard()
	}
	return address{ip: ip, port: s.port}
}

// plainRouteName is "http.8080". Source: Istio, model.gatewayRDSRouteName; a bind address follows,
// as there.
func plainRouteName(s gatewayServer) string {
	return "http." + strconv.FormatUint(uint64(s.port), 10) + bindSuffix(s.server)
}

// tlsRouteName is "https.443.portname.gateway.namespace", with the server's own port. Source:
// Istio, model.gatewayRDSRouteName; a bind address follows, as there.
func tlsRouteName(s gatewayServer) string {
	return strings.Join([]string{
		"https", strconv.FormatUint(uint64(s.server.GetPort().GetNumber()),
			10), s.server.Port.Name, s.gateway.Name, s.gateway.Namespace,
	}, ".") + bindSuffix(s.server)
}

func bindSuffix(s *networking.Server) string {
	if s.Bind == "" {
		return ""
	}
	return "." + s.Bind
}

// sniHosts are the hosts of a server without the namespaces before them, each once, in order.
func sniHosts(hosts []string) []string {
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
