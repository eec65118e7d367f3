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
	m.CommonHttpProtocolOptions = &corev3.HttpProtocolOptions{MaxConnectionDuration: durationpb.New(b.Age),
		IdleTimeout: positive(b.Idle)}
	m.Http1SafeMaxConnectionDuration = true
}

// boundLifetime limits the lifetime of a raw connection to that of a certificate. Policies and
// revocations apply to a raw connection once, when it begins.
func boundLifetime(p *tcpv3.TcpProxy, b push.ConnectionBounds) {
	if d := p.MaxDownstreamConnectionDuration; b.Age != 0 && (d == nil || d.AsDuration() > b.Age) {
		p.MaxDownstreamConnectionDuration = durationpb.New(b.Age)
	}
}

// positive is a duration; nil, Envoy's default, where it is zero.
func positive(d time.Duration) *durationpb.Duration {
	if d == 0 {
		return nil
	}
	return durationpb.New(d)
}

// asksForCertificate reports whether clients are asked for a certificate.
func (c chainSpec) asksForCertificate() bool {
	return c.mutual || c.asksOthers() || c.tls.GetMode() == networking.ServerTLSSettings_ISTIO_MUTUAL
}
