package listener

import (
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	tcpv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/tcp_proxy/v3"
	"google.golang.org/protobuf/types/known/durationpb"
	networking "istio.io/api/networking/v1alpha3"

	"github.com/ashore-mesh/ashore/push"
)

// boundAge limits how long an HTTP connection accepts requests. Its client then connects again, with
// a current certificate. Otherwise a connection in use would outlive its certificate, and a
// revocation by certificate would not reach it once the certificate is forgotten.
//
// HTTP/1 clients get "connection: close" with the next response, HTTP/2 clients a GOAWAY, so no
// request fails. An HTTP/1 connection without requests ends by the idle timeout. Source: Envoy 1.40,
// common_http_protocol_options.max_connection_duration, http1_safe_max_connection_duration.
func boundAge(m *hcmv3.HttpConnectionManager, b push.ConnectionBounds) {
	if b.Age == 0 {
		return
	}
	if m.CommonHttpProtocolOptions == nil {
		m.CommonHttpProtocolOptions = &corev3.HttpProtocolOptions{}
	}
	o := m.CommonHttpProtocolOptions
	o.MaxConnectionDuration = shorter(o.MaxConnectionDuration, b.Age)
	o.IdleTimeout = shorter(o.IdleTimeout, b.Idle)
	m.Http1SafeMaxConnectionDuration = true
}

// boundLifetime limits the lifetime of a raw connection to that of a certificate. Policies and
// revocations apply to a raw connection once, when it begins.
func boundLifetime(p *tcpv3.TcpProxy, b push.ConnectionBounds) {
	p.MaxDownstreamConnectionDuration = shorter(p.MaxDownstreamConnectionDuration, b.Age)
}

// shorter returns the shorter of two times, of which none, and zero, is without a limit.
func shorter(d *durationpb.Duration, limit time.Duration) *durationpb.Duration {
	if limit != 0 && (d.AsDuration() == 0 || d.AsDuration() > limit) {
		return durationpb.New(limit)
	}
	return d
}

// asksForCertificate reports whether clients are asked for a certificate.
func (c chainSpec) asksForCertificate() bool {
	return c.mutual || c.asksOthers() || c.tls.GetMode() == networking.ServerTLSSettings_ISTIO_MUTUAL
}
