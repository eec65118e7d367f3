package listener

import (
	"slices"
	"strings"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/ashore-mesh/ashore/xds/gen/access"
	"github.com/ashore-mesh/ashore/xds/gen/envoy"
)

// build makes the filter chain. readsTLS says that the listener tells TLS from plaintext. Errors:
// Envoy would refuse it.
func (c chainSpec) build(b *listenerBase, side listenerSide, readsTLS bool) (*listenerv3.FilterChain, error) {
	out := &listenerv3.FilterChain{Name: c.name, FilterChainMatch: c.match.build(readsTLS)}
	var wrapped []envoy.Validated
	if c.tls != nil {
		tls, err := serverTLS(c.tls, c.isHTTP(), b.mesh)
		if err != nil {
			return nil, err
		}
		wrapped = append(wrapped, tls)
		out.TransportSocket = envoy.TLSSocket(tls)
	}
	if c.lacksIdentity {
		return nil, errNoIdentity
	}
	if c.mutual {
		tls := envoy.MeshServer(b.mesh, envoy.AnyWorkload(b.mesh))
		wrapped = append(wrapped, tls)
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
		wrapped = append(wrapped, m)
		out.Filters = []*listenerv3.Filter{envoy.NetworkFilter("envoy.filters.network.http_connection_manager", envoy.Packed(m))}
	case c.tcp.weighted == nil && c.tcp.cluster == envoy.BlackHole && b.catchAll != envoy.BlackHole:
		out.Filters = b.blackHoleFilters
	default:
		p := tcpProxyOf(c.tcp, b.connectionLog)
		if side != sideOutbound && c.asksForCertificate() {
			boundLifetime(p, b.proven)
		}
		wrapped = append(wrapped, p)
		if side != sideOutbound {
			out.Filters = slices.Clone(b.judges)
		}
		if c.asksOthers() {
			out.Filters = slices.Concat(access.JudgeConnections(access.FilterForeign), out.Filters)
		}
		out.Filters = append(out.Filters, envoy.NetworkFilter(tcpProxyFilter, envoy.Packed(p)))
	}
	return out, envoy.CheckAll(append(wrapped, out)...)
}

// closed takes the same connections, and closes them.
func (c chainSpec) closed(b *listenerBase, readsTLS bool) *listenerv3.FilterChain {
	return &listenerv3.FilterChain{Name: c.name, FilterChainMatch: c.match.build(readsTLS), Filters: b.blackHoleFilters}
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
