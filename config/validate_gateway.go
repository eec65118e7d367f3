package config

import (
	"cmp"
	"fmt"
	"net/netip"
	"strings"

	"google.golang.org/protobuf/proto"
	networking "istio.io/api/networking/v1alpha3"
)

// gateway checks what routers listen to.
func (c *checker) gateway(g *networking.Gateway) {
	if len(g.Selector) == 0 {
		c.warnf("spec", "without selector this holds for every router: name their labels in spec.selector")
	}
	if len(g.Servers) == 0 {
		c.errorf("spec.servers", "the servers are missing: write at least one with port and hosts")
	}
	names, first := map[string]int{}, map[address]int{}
	for i, s := range g.Servers {
		path := at("spec.servers", i)
		c.samePort(path, first, g.Servers, i)
		if name := s.Port.GetName(); name != "" {
			if j, twice := names[name]; twice {
				c.errorf(path+".port.name",
					"the name %s is already used by spec.servers[%d]: names are unique within a Gateway", quote(name), j)
			}
			names[name] = i
		}
	}
}

// server checks one server.
func (c *checker) server(path string, s *networking.Server) {
	if s.Port == nil {
		c.errorf(path+".port", "the port is missing: write number, name and protocol")
		return
	}
	switch unix := strings.HasPrefix(s.Bind, unixPrefix); {
	case unix && s.Port.Number != 0:
		c.errorf(path+".port.number", "a socket has no port: remove the number %d, or bind", s.Port.Number)
	case !unix && s.Port.Number == 0:
		c.port(path+".port.number", 0)
	}
	if len(s.Hosts) == 0 {
		c.errorf(path+".hosts", "the hosts are missing: write them, or \"*\" for all")
	}
	// TLS must go together with the protocol.
	protocol := strings.ToUpper(s.Port.Protocol)
	redirect := &networking.ServerTLSSettings{HttpsRedirect: s.Tls.GetHttpsRedirect()}
	switch fam := family(protocol); {
	case fam == "TLS" && s.Tls == nil:
		c.errorf(path+".tls", "a server of protocol %s needs tls, with a mode", protocol)
	case fam == "TLS" && s.Tls.HttpsRedirect:
		c.warnf(path+".tls.httpsRedirect",
			"clients of this server speak TLS already: set it on the server of protocol HTTP")
	case fam == "HTTP" && s.Tls != nil && !proto.Equal(s.Tls, redirect):
		c.errorf(path+".tls", "protocol %s is without TLS, and tls can only hold httpsRedirect: choose protocol HTTPS", protocol)
	case fam == "TCP" && s.Tls != nil:
		c.errorf(path+".tls", "protocol %s is without TLS: choose protocol TLS, or remove tls", protocol)
	}
}

// address is where servers listen.
type address struct {
	bind string
	port uint32
}

// addressOf is where a server listens, however it says so: on the target port where there is one,
// and on every address when bind is empty.
func addressOf(s *networking.Server) address {
	a := address{bind: s.Bind, port: cmp.Or(s.Port.GetTargetPort(), s.Port.GetNumber())} //nolint:staticcheck // still read
	switch {
	case strings.HasPrefix(s.Bind, unixPrefix):
		a.port = 0 // a socket has none
	case everywhere(s.Bind):
		a.bind = ""
	}
	return a
}

// everywhere says that a bind field stands for every address.
func everywhere(bind string) bool {
	a, err := netip.ParseAddr(bind)
	return bind == "" || err == nil && a.IsUnspecified()
}

// The ports that the agent and every proxy have open. Source: docs/agent.md.
const (
	statusPort  = 15020
	healthPort  = 15021
	metricsPort = 15090
)

// proxyPort checks that a port on which a proxy shall listen is not one that it has for itself.
func (c *checker) proxyPort(path, bind string, port uint32) {
	if everywhere(bind) && (port == healthPort || port == metricsPort) {
		c.errorf(path, "port %d is the proxy's own, for health checks (%d) or metrics (%d): choose another", port,
			healthPort, metricsPort)
	}
}

// samePort checks server i against the first server that listens to the same address; first has
// that of each address. Which of two servers has a host is for package analyze.
func (c *checker) samePort(path string, first map[address]int, servers []*networking.Server, i int) {
	s := servers[i]
	if s.Port == nil {
		return
	}
	a := addressOf(s)
	c.proxyPort(path+".port", s.Bind, a.port)
	j, shared := first[a]
	if !shared {
		first[a] = i
		return
	}
	other := servers[j]
	switch {
	case other.Bind != s.Bind:
		c.errorf(path+".bind", "spec.servers[%d] listens to port %d of every address too, and spells bind another way: write it alike", j, a.port)
	case other.Port.Number != s.Port.Number:
		c.errorf(path+".port.number",
			"spec.servers[%d] listens there too, and is called by port %d: write the same number", j, other.Port.Number)
	case family(other.Port.Protocol) != family(s.Port.Protocol):
		c.errorf(path+".port.protocol", "%s and the %s of spec.servers[%d] cannot share %s: choose another",
			s.Port.Protocol, other.Port.Protocol, j, placeText(s))
	case family(s.Port.Protocol) == "TCP":
		c.errorf(path+".port.number",
			"%s is already used by spec.servers[%d], and connections without TLS cannot be told apart by host", placeText(s), j)
	}
}

// placeText is where a server listens, for people: a port, or a socket.
func placeText(s *networking.Server) string {
	if s.Port.Number == 0 {
		return s.Bind
	}
	return fmt.Sprintf("port %d", s.Port.Number)
}

// family is what servers must have in common to share a port.
func family(protocol string) string {
	switch strings.ToUpper(protocol) {
	case "HTTPS", "TLS":
		return "TLS"
	case "HTTP", "HTTP2", "GRPC", "GRPC-WEB":
		return "HTTP"
	default:
		return "TCP"
	}
}

// checkServerHost is the rule for hosts of Gateways, with or without a namespace.
func checkServerHost(text string) string {
	namespace, host, found := strings.Cut(text, "/")
	switch {
	case !found:
		host = text
	case namespace != "*" && namespace != "." && checkDNSLabel(namespace) != "":
		return checkDNSLabel(namespace)
	}
	return checkVirtualHost(host)
}
