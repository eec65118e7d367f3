package listener

import (
	"cmp"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/wrapperspb"
	mesh "istio.io/api/mesh/v1alpha1"

	"github.com/ashore-mesh/ashore/xds/gen/envoy"
)

// setHeaders says which headers the proxy sets. Source: istio.io, ProxyConfig.ProxyHeaders.
func setHeaders(m *hcmv3.HttpConnectionManager, h *mesh.ProxyConfig_ProxyHeaders) {
	m.ServerName = cmp.Or(h.GetServer().GetValue(), serverName)
	if h.GetServer().GetDisabled().GetValue() {
		m.ServerName, m.ServerHeaderTransformation = "", hcmv3.HttpConnectionManager_PASS_THROUGH
	}
	if h.GetRequestId().GetDisabled().GetValue() {
		m.GenerateRequestId = wrapperspb.Bool(false)
	}
	m.AppendXForwardedPort = h.GetXForwardedPort().GetEnabled().GetValue()
	if h.GetPreserveHttp1HeaderCase().GetValue() {
		m.HttpProtocolOptions = envoy.KeepHeaderCase()
	}
}

// forwardClientCertificate replaces x-forwarded-client-cert with the certificate of the connection,
// unless the proxy's settings say otherwise. Without a certificate Envoy removes the header. Source:
// Istio for the details; its sidecars append, so that an application that reads the first element
// believes what the caller wrote.
func forwardClientCertificate(m *hcmv3.HttpConnectionManager, side listenerSide, c *mesh.ProxyConfig) {
	if side == sideOutbound {
		return
	}
	how := c.GetProxyHeaders().GetForwardedClientCert()
	shows := c.GetProxyHeaders().GetSetCurrentClientCertDetails()
	if side == sideGateway {
		how = c.GetGatewayTopology().GetForwardClientCertDetails()
		shows = &mesh.ProxyConfig_ProxyHeaders_SetCurrentClientCertDetails{Cert: wrapperspb.Bool(true)}
	}
	how = cmp.Or(how, mesh.ForwardClientCertDetails_SANITIZE_SET)
	unset := func(b *wrapperspb.BoolValue) bool { return b == nil || b.Value }
	// Envoy's numbers lack UNDEFINED.
	m.ForwardClientCertDetails = hcmv3.HttpConnectionManager_ForwardClientCertDetails(how - 1)
	m.SetCurrentClientCertDetails = &hcmv3.HttpConnectionManager_SetCurrentClientCertDetails{
		Subject: wrapperspb.Bool(unset(shows.GetSubject())), Dns: unset(shows.GetDns()), Uri: unset(shows.GetUri()),
		Cert: shows.GetCert().GetValue(), Chain: shows.GetChain().GetValue(),
	}
}

// connectionSettings are those of a proxy, with the defaults of its profile.
// Source: istio.io, ProxyConfig.ConnectionSettings; Istio: EDGE changes gateways only.
func connectionSettings(c *mesh.ProxyConfig, router bool) *mesh.ProxyConfig_ConnectionSettings {
	set := c.GetConnectionSettings()
	if !router || set.GetProfile() != mesh.ProxyConfig_ConnectionSettings_EDGE {
		return set
	}
	out := &mesh.ProxyConfig_ConnectionSettings{
		ListenerPerConnectionBufferLimitBytes: wrapperspb.Int32(32 << 10),
		HttpIdleTimeout:                       durationpb.New(time.Hour),
		HttpStreamIdleTimeout:                 durationpb.New(5 * time.Minute),
		HttpRequestTimeout:                    durationpb.New(5 * time.Minute),
		HttpRequestHeadersTimeout:             durationpb.New(time.Minute),
		HttpMaxConcurrentStreams:              wrapperspb.Int32(100),
		Http2InitialStreamWindowSize:          wrapperspb.Int32(64 << 10),
		Http2InitialConnectionWindowSize:      wrapperspb.Int32(1 << 20),
		HttpHeadersWithUnderscoresAction:      mesh.ProxyConfig_ConnectionSettings_HEADERS_WITH_UNDERSCORES_REJECT_REQUEST,
		HttpMergeSlashes:                      wrapperspb.Bool(true),
		HttpPathWithEscapedSlashesAction:      mesh.ProxyConfig_ConnectionSettings_UNESCAPE_AND_REDIRECT,
	}
	set.ProtoReflect().Range(func(fd protoreflect.FieldDescriptor, v protoreflect.Value) bool {
		out.ProtoReflect().Set(fd, v)
		return true
	})
	return out
}

// limitConnections applies the settings, which go before the mesh's path normalization.
func limitConnections(m *hcmv3.HttpConnectionManager, s *mesh.ProxyConfig_ConnectionSettings) {
	if s == nil {
		return
	}
	common := &corev3.HttpProtocolOptions{IdleTimeout: s.HttpIdleTimeout,
		MaxConnectionDuration: s.HttpMaxConnectionDuration, MaxStreamDuration: s.HttpMaxStreamDuration}
	if a := s.HttpHeadersWithUnderscoresAction; a != 0 { // Envoy's numbers lack UNSPECIFIED
		common.HeadersWithUnderscoresAction = corev3.HttpProtocolOptions_HeadersWithUnderscoresAction(a - 1)
	}
	if proto.Size(common) > 0 {
		m.CommonHttpProtocolOptions = common
	}
	http2 := &corev3.Http2ProtocolOptions{MaxConcurrentStreams: unsigned(s.HttpMaxConcurrentStreams),
		InitialStreamWindowSize:     unsigned(s.Http2InitialStreamWindowSize),
		InitialConnectionWindowSize: unsigned(s.Http2InitialConnectionWindowSize)}
	if proto.Size(http2) > 0 {
		m.Http2ProtocolOptions = http2
	}
	m.StreamIdleTimeout = cmp.Or(s.HttpStreamIdleTimeout, m.StreamIdleTimeout)
	m.RequestTimeout, m.RequestHeadersTimeout = s.HttpRequestTimeout, s.HttpRequestHeadersTimeout
	m.DrainTimeout = s.HttpDrainTimeout
	if s.HttpMergeSlashes != nil {
		m.MergeSlashes = s.HttpMergeSlashes.Value
	}
	if a := s.HttpPathWithEscapedSlashesAction; a != 0 {
		m.PathWithEscapedSlashesAction = hcmv3.HttpConnectionManager_PathWithEscapedSlashesAction(a)
	}
}

func unsigned(n *wrapperspb.Int32Value) *wrapperspb.UInt32Value {
	if n == nil {
		return nil
	}
	return wrapperspb.UInt32(uint32(n.Value))
}
