package listener

import (
	networking "istio.io/api/networking/v1alpha3"

	"github.com/ashore-mesh/ashore/internal/feed"
	"github.com/ashore-mesh/ashore/push"
	"github.com/ashore-mesh/ashore/registry"
	"github.com/ashore-mesh/ashore/xds/gen/envoy"
)

// What the TLS inspector finds: plaintext or TLS. Source: Envoy, filter_chain_match.transport_protocol.
const (
	plainTransport = "raw_buffer"
	tlsTransport   = "tls"
)

// peerModesOf are the modes that matter to a proxy: without identity it takes no mutual TLS, so
// that ports which need not have it are as if it were disabled.
func (g *Generator) peerModesOf(sc *push.Scope) push.PeerModes {
	m := push.PeerModesOf(sc.PeerAuthentication.Items(), sc.Mesh.Config.GetRootNamespace(), &g.modes)
	if sc.Identity {
		return m
	}
	out := push.PeerModes{Default: withoutTLS(m.Default)}
	var ports []push.PortMode
	for _, p := range m.Ports.Items() {
		if mode := withoutTLS(p.Mode); mode != out.Default {
			ports = append(ports, push.PortMode{Port: p.Port, Mode: mode})
		}
	}
	out.Ports = g.modes.Of(ports)
	return out
}

func withoutTLS(m push.PeerMode) push.PeerMode {
	if m == push.PeerPermissive {
		return push.PeerDisable
	}
	return m
}

// inboundChains makes the chains of one port, or of all that are not known, by mode.
type inboundChains struct {
	// http and tcp are what the chains do with requests and with connections, and what they match
	// at least.
	http, tcp chainSpec
	protocol  registry.Protocol
	mode      push.PeerMode
	// own, when not nil, ends TLS of clients that are not of the mesh; protocol is known then.
	own *networking.ServerTLSSettings
	// identity says that the proxy has a certificate of the mesh.
	identity bool
	// apart says that the listener tells TLS from plaintext, be it for another port.
	apart bool
}

// list lists them.
//
// Source: Istio's inbound listeners. STRICT takes TLS alone, with a certificate. PERMISSIVE tells
// clients of the mesh by what they offer in TLS; TLS of others is the workload's own, and passes as
// it is. DISABLE leaves all to the workload. Where a Sidecar's listener has TLS of its own, clients
// that are not of the mesh have to speak that. Where both HTTP and connections are possible,
// clients that end in mutual TLS say which it is: nobody sees inside before it is ended.
func (c inboundChains) list() []chainSpec {
	switch {
	case c.mode == push.PeerStrict && !c.identity:
		closed := c.tcp
		closed.closed = true
		return []chainSpec{closed}
	case c.mode == push.PeerStrict:
		return c.mutual("", "")
	case c.mode == push.PeerPermissive && c.identity && c.own != nil:
		return append(c.mutual(envoy.ALPNMeshAny, envoy.ALPNMeshOther), over(c.terminating(), tlsTransport))
	case c.own != nil:
		return []chainSpec{c.terminating()}
	case c.mode == push.PeerPermissive && c.identity:
		return append(c.mutual(envoy.ALPNMeshAny, envoy.ALPNMeshOther), c.permissive()...)
	case c.protocol.IsHTTP():
		return []chainSpec{c.http}
	case c.protocol != registry.Unknown:
		return []chainSpec{c.tcp}
	case !c.apart:
		return []chainSpec{plainRequests(c.http), c.tcp}
	default:
		return c.permissive()
	}
}

// mutual are the chains that end mutual TLS, of clients that offer certain protocols; empty: of any.
// A port of one protocol has one chain for all, a port whose protocol is not known one for clients
// that say they speak HTTP, and one for the rest.
func (c inboundChains) mutual(all, rest string) []chainSpec {
	switch {
	case c.protocol.IsHTTP():
		return []chainSpec{ending(c.http, all)}
	case c.protocol == registry.Unknown:
		return []chainSpec{ending(c.http, envoy.ALPNMeshHTTP), ending(c.tcp, rest)}
	default:
		return []chainSpec{ending(c.tcp, all)}
	}
}

// permissive are the chains of clients that speak no mutual TLS.
func (c inboundChains) permissive() []chainSpec {
	others := over(c.tcp, tlsTransport)
	switch {
	case c.protocol.IsHTTP():
		return []chainSpec{over(c.http, plainTransport), others}
	case c.protocol == registry.Unknown:
		return []chainSpec{plainRequests(c.http), over(c.tcp, plainTransport), others}
	default:
		return []chainSpec{over(c.tcp, plainTransport), others}
	}
}

// terminating is the chain that ends the listener's own TLS.
func (c inboundChains) terminating() chainSpec {
	out := c.tcp
	if c.protocol.IsHTTP() {
		out = c.http
	}
	out.tls = c.own
	return out
}

// plainRequests is c for what was recognised as plaintext HTTP.
func plainRequests(c chainSpec) chainSpec {
	c.match.plainHTTP = true
	return c
}

// over is c for one transport.
func over(c chainSpec, transport string) chainSpec {
	c.match.transport = transport
	return c
}

// ending is c behind mutual TLS of clients that offer one of the protocols.
func ending(c chainSpec, alpn string) chainSpec {
	c.match.transport, c.match.alpn, c.mutual = tlsTransport, alpn, true
	return c
}

// strictWithoutIdentity is the problem of a chain that closes because of chainSpec.lacksIdentity.
func strictWithoutIdentity(listener string) *feed.Problem {
	return envoy.ProblemOf(nil, feed.Warning, "a filter chain of the listener "+listener+" closes its connections: only mutual TLS is allowed there (a PeerAuthentication says STRICT, "+
		"or a Gateway's server ISTIO_MUTUAL), and the proxy has no certificate of the mesh: let its machine join")
}
