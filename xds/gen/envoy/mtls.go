package envoy

import (
	"cmp"
	"net/netip"
	"strings"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	tlsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/tls/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/wrapperspb"
	mesh "istio.io/api/mesh/v1alpha1"

	"github.com/ashore-mesh/ashore/push"
)

// Where a proxy gets its own certificate and the mesh's roots: of the agent beside it. Source:
// Istio, pkg/security.
const (
	AgentCluster = "sds-grpc"
	OwnSecret    = "default"
	RootsSecret  = "ROOTCA"
)

// fromAgent is a secret that the agent gives. Source: Istio's form of it.
func fromAgent(name string) *tlsv3.SdsSecretConfig {
	return &tlsv3.SdsSecretConfig{Name: name, SdsConfig: &corev3.ConfigSource{
		ResourceApiVersion: corev3.ApiVersion_V3,
		ConfigSourceSpecifier: &corev3.ConfigSource_ApiConfigSource{ApiConfigSource: &corev3.ApiConfigSource{
			ApiType:                   corev3.ApiConfigSource_GRPC,
			TransportApiVersion:       corev3.ApiVersion_V3,
			SetNodeOnFirstMessageOnly: true,
			GrpcServices: []*corev3.GrpcService{{TargetSpecifier: &corev3.GrpcService_EnvoyGrpc_{
				EnvoyGrpc: &corev3.GrpcService_EnvoyGrpc{ClusterName: AgentCluster},
			}}},
		}},
	}}
}

// MeshTLS is mutual TLS with the proxy's own certificate, with peers whose certificate the mesh's
// roots vouch for and that bears one of names; without names it may bear any.
func MeshTLS(m *push.Mesh, alpn []string, names []*tlsv3.SubjectAltNameMatcher) *tlsv3.CommonTlsContext {
	return &tlsv3.CommonTlsContext{
		TlsParams:                      meshParameters(m.Config.GetMeshMTLS()),
		AlpnProtocols:                  alpn,
		TlsCertificateSdsSecretConfigs: []*tlsv3.SdsSecretConfig{fromAgent(OwnSecret)},
		ValidationContextType:          PeerValidation(fromAgent(RootsSecret), names),
	}
}

// PeerValidation verifies that the peer's certificate ends in one of roots, a secret, and bears one of
// names; without names it may bear any.
func PeerValidation(roots *tlsv3.SdsSecretConfig,
	names []*tlsv3.SubjectAltNameMatcher) *tlsv3.CommonTlsContext_CombinedValidationContext {
	return &tlsv3.CommonTlsContext_CombinedValidationContext{
		CombinedValidationContext: &tlsv3.CommonTlsContext_CombinedCertificateValidationContext{
			DefaultValidationContext:         &tlsv3.CertificateValidationContext{MatchTypedSubjectAltNames: names},
			ValidationContextSdsSecretConfig: roots,
		},
	}
}

// meshCiphers are those of TLS 1.2 where the mesh names none. Source: istio.io,
// MeshConfig.TLSConfig.cipherSuites, of which those without forward secrecy are left out.
func meshCiphers() []string {
	return []string{
		"ECDHE-ECDSA-AES256-GCM-SHA384", "ECDHE-RSA-AES256-GCM-SHA384", "ECDHE-ECDSA-AES128-GCM-SHA256", "ECDHE-RSA-AES128-GCM-SHA256",
	}
}

// meshParameters are the versions, ciphers and curves between workloads. Source: istio.io,
// MeshConfig.meshMTLS.
func meshParameters(t *mesh.MeshConfig_TLSConfig) *tlsv3.TlsParameters {
	p := &tlsv3.TlsParameters{
		TlsMinimumProtocolVersion: cmp.Or(LeastTLSVersion(t), tlsv3.TlsParameters_TLSv1_2),
		TlsMaximumProtocolVersion: tlsv3.TlsParameters_TLSv1_3,
		CipherSuites:              t.GetCipherSuites(),
		EcdhCurves:                t.GetEcdhCurves(),
	}
	if len(p.CipherSuites) == 0 {
		p.CipherSuites = meshCiphers()
	}
	return p
}

// LeastTLSVersion is the lowest version that the mesh sets. Zero is Envoy's default.
func LeastTLSVersion(t *mesh.MeshConfig_TLSConfig) tlsv3.TlsParameters_TlsProtocol {
	switch t.GetMinProtocolVersion() {
	case mesh.MeshConfig_TLSConfig_TLSV1_2:
		return tlsv3.TlsParameters_TLSv1_2
	case mesh.MeshConfig_TLSConfig_TLSV1_3:
		return tlsv3.TlsParameters_TLSv1_3
	default:
		return tlsv3.TlsParameters_TLS_AUTO
	}
}

// AnyWorkload matches the certificates of every workload of the mesh, and of nothing else: the
// control plane's has no namespace. Source: Istio, trust domain validation.
func AnyWorkload(m *push.Mesh) []*tlsv3.SubjectAltNameMatcher {
	var out []*tlsv3.SubjectAltNameMatcher
	for _, d := range m.TrustDomains() {
		out = append(out, &tlsv3.SubjectAltNameMatcher{
			SanType: tlsv3.SubjectAltNameMatcher_URI,
			Matcher: Prefix("spiffe://" + d + "/ns/"),
		})
	}
	return out
}

// The protocols by which a client of the mesh tells in TLS that it is one. Source: Istio,
// ALPNInMeshH2WithMxc.
const (
	ALPNMesh = "istio"
	// ALPNExchange says that workload metadata comes first, which takes a filter that stock Envoy
	// does not have.
	ALPNExchange = "istio-peer-exchange"
)

// The protocols that clients of the mesh offer: those that know they speak HTTP, others, and all.
const (
	ALPNMeshHTTP  = "istio-http/1.0,istio-http/1.1,istio-h2"
	ALPNMeshOther = ALPNMesh + "," + ALPNExchange
	ALPNMeshAny   = ALPNMeshOther + "," + ALPNMeshHTTP
)

// MeshServer ends mutual TLS of clients that bear one of names.
func MeshServer(m *push.Mesh, names []*tlsv3.SubjectAltNameMatcher) *tlsv3.DownstreamTlsContext {
	out := &tlsv3.DownstreamTlsContext{
		CommonTlsContext:         MeshTLS(m, []string{"h2", "http/1.1"}, names),
		RequireClientCertificate: wrapperspb.Bool(true),
	}
	NeverResume(out)
	return out
}

// NeverResume has each connection show the client's certificate anew: of a resumed session it is
// not looked at again, and may have expired or been revoked.
func NeverResume(t *tlsv3.DownstreamTlsContext) {
	t.SessionTicketKeysType = &tlsv3.DownstreamTlsContext_DisableStatelessSessionResumption{DisableStatelessSessionResumption: true}
	t.DisableStatefulSessionResumption = true
}

// TLSSocket is a transport socket of TLS, of either side.
func TLSSocket(t proto.Message) *corev3.TransportSocket {
	return &corev3.TransportSocket{
		Name:       "envoy.transport_sockets.tls",
		ConfigType: &corev3.TransportSocket_TypedConfig{TypedConfig: Packed(t)},
	}
}

// ClientTLS is the TLS that is spoken upstream: versions 1.2 and 1.3, as Istio does, with the ciphers
// and curves of the mesh. Source: istio.io, MeshConfig.tlsDefaults.
func ClientTLS(m *push.Mesh) *tlsv3.CommonTlsContext {
	return &tlsv3.CommonTlsContext{TlsParams: &tlsv3.TlsParameters{
		TlsMinimumProtocolVersion: tlsv3.TlsParameters_TLSv1_2,
		TlsMaximumProtocolVersion: tlsv3.TlsParameters_TLSv1_3,
		CipherSuites:              m.Config.GetTlsDefaults().GetCipherSuites(),
		EcdhCurves:                m.Config.GetTlsDefaults().GetEcdhCurves(),
	}}
}

// Nobody is a name that no server has. Where Envoy has no name to ask for it would verify none.
// Source: RFC 2606, section 2.
const Nobody = "nobody.invalid"

// SNIOf is what clients call a host in TLS: wildcards and addresses have no such name.
// Source: RFC 6066, section 3.
func SNIOf(host string) string {
	if _, err := netip.ParseAddr(host); err == nil || strings.HasPrefix(host, "*") {
		return ""
	}
	return host
}
