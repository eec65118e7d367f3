package listener

import (
	"slices"
	"strings"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	tlsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/tls/v3"
	"google.golang.org/protobuf/types/known/wrapperspb"
	networking "istio.io/api/networking/v1alpha3"

	"github.com/ashore-mesh/ashore/xds/gen/access"
	"github.com/ashore-mesh/ashore/xds/gen/envoy"
)

// build makes the filter chain. readsTLS says that the listener tells TLS from plaintext. Errors:
// Envoy would refuse it.
func (c chainSpec) build(b *listenerBase, side listenerSide, readsTLS bool) (*listenerv3.FilterChain, error) {
	out := &listenerv3.FilterChain{Name: c.name, FilterChainMatch: c.match.build(readsTLS)}
	var packed []envoy.Validated
	if tls := c.downstreamTLS(b.listenerSettings); tls != nil {
		packed = append(packed, tls)
		out.TransportSocket = envoy.TLSSocket(tls)
	}
	switch {
	case c.isHTTP():
		m := b.httpManager(side, c.http)
		if c.asksOthers() {
			refuseImpostors(m)
		}
		if side != sideOutbound && c.asksForCertificate() {
			boundAge(m, b.proven)
		}
		packed = append(packed, m)
		out.Filters = []*listenerv3.Filter{envoy.NetworkFilter("envoy.filters.network.http_connection_manager", m)}
	case c.tcp.weighted == nil && c.tcp.cluster == envoy.BlackHole && b.catchAll != envoy.BlackHole:
		out.Filters = b.blackHoleFilters
	default:
		p := tcpProxy(c.tcp, b.reports(side).Connections)
		if side != sideOutbound && c.asksForCertificate() {
			boundLifetime(p, b.proven)
			afterHandshake(p)
		}
		packed = append(packed, p)
		if side != sideOutbound {
			out.Filters = slices.Clone(b.judges)
		}
		if c.asksOthers() {
			out.Filters = slices.Concat(access.JudgeConnections(access.FilterForeign), out.Filters)
		}
		if c.tcp.dynamicPort != 0 {
			out.Filters = append(out.Filters, resolveConnections(c.tcp.dynamicPort, b.dynamicFamilies))
		}
		out.Filters = append(out.Filters, tcpFilter(p))
	}
	return out, envoy.CheckAll(append(packed, out)...)
}

// downstreamTLS is how the chain ends TLS; nil: it does not.
func (c chainSpec) downstreamTLS(s listenerSettings) *tlsv3.DownstreamTlsContext {
	switch {
	case c.mutual:
		return envoy.MeshServer(s.mesh, envoy.AnyWorkload(s.mesh))
	case c.tls != nil:
		return serverTLS(c.tls, c.isHTTP(), s)
	}
	return nil
}

// lacksIdentity says that the chain could only end mutual TLS, for which the proxy has no certificate.
func (c chainSpec) lacksIdentity(s listenerSettings) bool {
	return c.closed || c.tls.GetMode() == networking.ServerTLSSettings_ISTIO_MUTUAL && !s.identity
}

// plainHTTP are the protocols that the HTTP inspector tells. HTTP/1.0 is not among them: Envoy
// would refuse it, and as raw TCP it gets through. Source: Istio.
func plainHTTP() []string { return []string{"http/1.1", "h2c"} }

// build makes the match; nil when it takes all. The transport is part of it only where TLS is told
// apart: Envoy does not try the chains without one after it found some with one.
func (m chainMatch) build(readsTLS bool) *listenerv3.FilterChainMatch {
	if m.all() {
		return nil
	}
	out := &listenerv3.FilterChainMatch{ServerNames: m.sni.Items(), TransportProtocol: m.transport}
	if m.alpn != "" {
		out.ApplicationProtocols = strings.Split(m.alpn, ",")
	}
	if m.port != 0 {
		out.DestinationPort = wrapperspb.UInt32(m.port)
	}
	if m.subnet.IsValid() {
		out.PrefixRanges = []*corev3.CidrRange{envoy.CidrRange(m.subnet)}
	}
	if m.plainHTTP {
		out.ApplicationProtocols = plainHTTP()
		if readsTLS {
			out.TransportProtocol = plainTransport
		}
	}
	return out
}
