package listener

import (
	"cmp"
	"strings"

	tlsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/tls/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/wrapperspb"
	mesh "istio.io/api/mesh/v1alpha1"
	networking "istio.io/api/networking/v1alpha3"

	"github.com/ashore-mesh/ashore/xds/gen/envoy"
	"github.com/ashore-mesh/ashore/xds/gen/secret"
)

// serverTLS returns how the proxy terminates TLS for a server of a Gateway or of a Sidecar.
//
// Source: Istio: HTTP servers offer HTTP/2 and HTTP/1.1 by ALPN. Servers that forward connections
// offer no protocol. Istio offers both there, and a client may then speak HTTP/2 to a backend that
// does not support it.
func serverTLS(t *networking.ServerTLSSettings, http bool, s listenerSettings) *tlsv3.DownstreamTlsContext {
	var alpn []string
	if http {
		alpn = []string{"h2", "http/1.1"}
	}
	if t.Mode == networking.ServerTLSSettings_ISTIO_MUTUAL {
		return meshServerTLS(t, alpn, s)
	}
	common := &tlsv3.CommonTlsContext{TlsParams: tlsParameters(t, s.mesh.Config.GetTlsDefaults()), AlpnProtocols: alpn}
	for _, c := range secret.CertificatesOf(t) {
		common.TlsCertificateSdsSecretConfigs = append(common.TlsCertificateSdsSecretConfigs, c.Ref())
	}
	out := &tlsv3.DownstreamTlsContext{CommonTlsContext: common,
		RequireClientCertificate: wrapperspb.Bool(t.Mode == networking.ServerTLSSettings_MUTUAL)}
	if authorities := secret.ClientAuthorities(t); authorities != nil {
		secret.Trust(common, authorities, t.SubjectAltNames)
		v := common.GetCombinedValidationContext().DefaultValidationContext
		v.VerifyCertificateSpki, v.VerifyCertificateHash = t.VerifyCertificateSpki, t.VerifyCertificateHash
		envoy.NeverResume(out)
	}
	return out
}

// meshServerTLS returns how the proxy terminates the mesh's mutual TLS for a server. It accepts
// workloads of the mesh with one of the server's subjectAltNames, or all if there are none.
func meshServerTLS(t *networking.ServerTLSSettings, alpn []string, s listenerSettings) *tlsv3.DownstreamTlsContext {
	names := envoy.ExactNames(t.SubjectAltNames)
	if len(names) == 0 {
		names = envoy.AnyWorkload(s.mesh)
	}
	out := envoy.MeshServer(s.mesh, names)
	out.CommonTlsContext.AlpnProtocols = alpn
	if p := tlsParameters(t, nil); p != nil {
		out.CommonTlsContext.TlsParams = p
	}
	return out
}

// tlsParameters returns a server's TLS versions, cipher suites and curves. What it does not set is that
// of defaults. It returns nil if nothing is set. Envoy's defaults then apply.
// Source: istio.io, MeshConfig.tlsDefaults.
func tlsParameters(t *networking.ServerTLSSettings, defaults *mesh.MeshConfig_TLSConfig) *tlsv3.TlsParameters {
	p := &tlsv3.TlsParameters{
		TlsMinimumProtocolVersion: cmp.Or(tlsVersion(t.MinProtocolVersion), envoy.LeastTLSVersion(defaults)),
		TlsMaximumProtocolVersion: tlsVersion(t.MaxProtocolVersion),
		EcdhCurves:                defaults.GetEcdhCurves(),
	}
	for _, c := range t.CipherSuites {
		// TLS 1.3 cipher suites cannot be configured, and Envoy rejects them.
		if !strings.HasPrefix(c, "TLS_") {
			p.CipherSuites = append(p.CipherSuites, c)
		}
	}
	if len(p.CipherSuites) == 0 {
		p.CipherSuites = defaults.GetCipherSuites()
	}
	if proto.Size(p) == 0 {
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
