package cluster

import (
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	proxyprotocolv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/proxy_protocol/v3"
	rawbufferv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/raw_buffer/v3"
	networking "istio.io/api/networking/v1alpha3"

	"github.com/ashore-mesh/ashore/xds/gen/envoy"
)

// proxied puts a header with the client's address before what a transport socket sends; a nil socket
// is plaintext. A nil p changes nothing. Source: istio.io, TrafficPolicy.proxyProtocol.
func proxied(socket *corev3.TransportSocket, p *networking.TrafficPolicy_ProxyProtocol) *corev3.TransportSocket {
	if p == nil {
		return socket
	}
	if socket == nil {
		socket = &corev3.TransportSocket{Name: "envoy.transport_sockets.raw_buffer",
			ConfigType: &corev3.TransportSocket_TypedConfig{TypedConfig: envoy.Packed(&rawbufferv3.RawBuffer{})}}
	}
	outer := &proxyprotocolv3.ProxyProtocolUpstreamTransport{TransportSocket: socket,
		Config: &corev3.ProxyProtocolConfig{Version: corev3.ProxyProtocolConfig_Version(p.Version)}}
	return &corev3.TransportSocket{Name: "envoy.transport_sockets.upstream_proxy_protocol",
		ConfigType: &corev3.TransportSocket_TypedConfig{TypedConfig: envoy.Packed(outer)}}
}
