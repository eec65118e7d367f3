package gen

import (
	"strings"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	tlsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/tls/v3"
	"google.golang.org/protobuf/types/known/wrapperspb"
	networking "istio.io/api/networking/v1alpha3"
)

// certificate is a certificate chain and its key by the paths of their files on the proxy's machine. It
// comes as a secret that names the files, because only then Envoy takes them anew when they are replaced.
// Source: envoyproxy.io, TlsCertificate.watched_directory and "Key rotation".
type certificate struct{ chain, key string }

// secretName is "file-cert:<chain>~<key>". Source: wire.md 2.3.
func (c certificate) secretName() string { return "file-cert:" + c.chain + "~" + c.key }

// certificatesOf are those of a server: the first of several is what a client without SNI sees.
func certificatesOf(t *networking.ServerTLSSettings) []certificate {
	if len(t.GetTlsCertificates()) > 0 {
		out := make([]certificate, 0, len(t.TlsCertificates))
		for _, c := range t.TlsCertificates {
			out = append(out, certificate{c.ServerCertificate, c.PrivateKey})
		}
		return out
	}
	return []certificate{{t.GetServerCertificate(), t.GetPrivateKey()}}
}

// serverTLS ends TLS as a server of a Gateway says.
//
// Source: Istio: HTTP servers offer HTTP/2 and HTTP/1.1. Servers that forward connections offer
// nothing (Istio offers the same there, and a client may then speak HTTP/2 to a server that cannot).
func serverTLS(t *networking.ServerTLSSettings, http bool) *tlsv3.DownstreamTlsContext {
	common := &tlsv3.CommonTlsContext{TlsParams: tlsParameters(t)}
	if http {
		common.AlpnProtocols = []string{"h2", "http/1.1"}
	}
	for _, c := range certificatesOf(t) {
		common.TlsCertificateSdsSecretConfigs = append(common.TlsCertificateSdsSecretConfigs,
			&tlsv3.SdsSecretConfig{Name: c.secretName(), SdsConfig: fromADS()})
	}
	return &tlsv3.DownstreamTlsContext{CommonTlsContext: common, RequireClientCertificate: wrapperspb.Bool(false)}
}

// tlsSocket ends TLS.
func tlsSocket(t *tlsv3.DownstreamTlsContext) *corev3.TransportSocket {
	return &corev3.TransportSocket{
		Name:       "envoy.transport_sockets.tls",
		ConfigType: &corev3.TransportSocket_TypedConfig{TypedConfig: packed(t)},
	}
}

// tlsParameters are the versions and ciphers; nil when a server names none, so that Envoy's defaults hold.
func tlsParameters(t *networking.ServerTLSSettings) *tlsv3.TlsParameters {
	p := &tlsv3.TlsParameters{
		TlsMinimumProtocolVersion: tlsVersion(t.MinProtocolVersion),
		TlsMaximumProtocolVersion: tlsVersion(t.MaxProtocolVersion),
	}
	for _, c := range t.CipherSuites {
		// the names of TLS 1.3 cannot be chosen, and Envoy refuses them
		if !strings.HasPrefix(c, "TLS_") {
			p.CipherSuites = append(p.CipherSuites, c)
		}
	}
	if p.TlsMinimumProtocolVersion == 0 && p.TlsMaximumProtocolVersion == 0 && len(p.CipherSuites) == 0 {
		return nil
	}
	return p
}

// tlsVersion translates a version; zero means Envoy's default.
func tlsVersion(v networking.ServerTLSSettings_TLSProtocol) tlsv3.TlsParameters_TlsProtocol {
	switch v {
	case networking.ServerTLSSettings_TLSV1_0:
		return tlsv3.TlsParameters_TLSv1_0
	case networking.ServerTLSSettings_TLSV1_1:
		return tlsv3.TlsParameters_TLSv1_1
	case networking.ServerTLSSettings_TLSV1_2:
		return tlsv3.TlsParameters_TLSv1_2
	case networking.ServerTLSSettings_TLSV1_3:
		return tlsv3.TlsParameters_TLSv1_3
	default:
		return tlsv3.TlsParameters_TLS_AUTO
	}
}
