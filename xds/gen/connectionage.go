package gen

import (
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	"google.golang.org/protobuf/types/known/durationpb"
	networking "istio.io/api/networking/v1alpha3"

	"github.com/ashore-mesh/ashore/push"
)

// boundAge has a connection take no further request once it is old: whoever opened it then shows a
// certificate anew. Without it a connection outlives the certificate that it was opened with, for
// as long as it is used, and one day nobody remembers which certificate that was, so that a
// revocation does not reach it.
//
// HTTP/1 clients are told with the answer to the next request, HTTP/2 clients by a GOAWAY: neither
// loses a request. An HTTP/1 connection without requests ends by being idle. Source: Envoy 1.40,
// common_http_protocol_options.max_connection_duration, http1_safe_max_connection_duration.
func boundAge(m *hcmv3.HttpConnectionManager, b push.ConnectionBounds) {
	if b.Age == 0 {
		return
	}
	m.CommonHttpProtocolOptions = &corev3.HttpProtocolOptions{MaxConnectionDuration: durationpb.New(b.Age),
		IdleTimeout: positive(b.Idle)}
	m.Http1SafeMaxConnectionDuration = true
}

// positive is a duration; nil, Envoy's default, where it is zero.
func positive(d time.Duration) *durationpb.Duration {
	if d == 0 {
		return nil
	}
	return durationpb.New(d)
}

// asksForCertificate says that clients are asked to show who they are.
func (c chainSpec) asksForCertificate() bool {
	return c.mutual || c.asksOthers() || c.tls.GetMode() == networking.ServerTLSSettings_ISTIO_MUTUAL
}
