package gen

import (
	"cmp"
	"net/netip"
	"strings"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	tlsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/tls/v3"
	matcherv3 "github.com/envoyproxy/go-control-plane/envoy/type/matcher/v3"
	networking "istio.io/api/networking/v1alpha3"
)

// usesTLS says that connections to endpoints are TLS by what a rule says.
func usesTLS(t *networking.ClientTLSSettings) bool {
	return t.GetMode() == networking.ClientTLSSettings_SIMPLE || t.GetMode() == networking.ClientTLSSettings_MUTUAL
}

// applyTLS makes Envoy speak TLS to the endpoints.
//
// Source: istio.io, ClientTLSSettings: without caCertificates the machine's own authorities are
// trusted; without sni and subjectAltNames both follow the request's host; the identities that a
// ServiceEntry names (identities) stand in for missing subjectAltNames. Where an sni is set and no
// name is, the certificate has to be the sni's: a certificate of anybody else must not do.
//
// Only HTTP has a request's host. For connections, to whatever port, peer stands in for it: their
// service's host. A wildcard peer names nobody. Connections to a port that is not HTTP may then
// have a certificate for that very wildcard: authorities give it to who holds the whole domain, who
// could have one for each of its hosts. On an HTTP port (http), where Envoy verifies what it had
// asked for, they are refused.
func applyTLS(c *clusterv3.Cluster, h *upstreamHTTP, t *networking.ClientTLSSettings, identities []string, peer string,
	http bool) {
	if !usesTLS(t) {
		return
	}
	names := t.SubjectAltNames
	if len(names) == 0 {
		names = identities
	}
	verify := !t.InsecureSkipVerify.GetValue()
	anyName := verify && len(names) == 0
	tls := &tlsv3.UpstreamTlsContext{Sni: cmp.Or(t.Sni, sniOf(peer)), CommonTlsContext: clientTLS()}
	switch {
	case t.Sni != "":
		tls.AutoSniSanValidation = anyName
	case http:
		// a client that does not know the later field still verifies requests by the older one
		h.upstream().AutoSni = true
		h.upstream().AutoSanValidation = anyName
		tls.AutoSniSanValidation = anyName
		if anyName && tls.Sni == "" {
			tls.Sni = nobody
		}
	case anyName:
		names = []string{peer}
	}
	if h.protocol == upstreamHTTP2 {
		tls.CommonTlsContext.AlpnProtocols = []string{"h2"}
	}
	if t.Mode == networking.ClientTLSSettings_MUTUAL {
		own := certificate{t.ClientCertificate, t.PrivateKey}
		tls.CommonTlsContext.TlsCertificateSdsSecretConfigs = []*tlsv3.SdsSecretConfig{secretRef(own.secretName())}
	}
	if verify {
		trust(tls.CommonTlsContext, rootsOf(t), names)
	}
	c.TransportSocket = &corev3.TransportSocket{
		Name:       "envoy.transport_sockets.tls",
		ConfigType: &corev3.TransportSocket_TypedConfig{TypedConfig: packed(tls)},
	}
}

// clientTLS are the versions of TLS that are spoken upstream: 1.2 and 1.3, as Istio does.
func clientTLS() *tlsv3.CommonTlsContext {
	return &tlsv3.CommonTlsContext{TlsParams: &tlsv3.TlsParameters{
		TlsMinimumProtocolVersion: tlsv3.TlsParameters_TLSv1_2,
		TlsMaximumProtocolVersion: tlsv3.TlsParameters_TLSv1_3,
	}}
}

// trust makes t verify the peer: its chain ends in one of the roots, which have not revoked it, and
// it bears one of names (none: any).
func trust(t *tlsv3.CommonTlsContext, r roots, names []string) {
	own := &tlsv3.CertificateValidationContext{}
	for _, n := range names {
		own.MatchTypedSubjectAltNames = append(own.MatchTypedSubjectAltNames, exactName(n))
	}
	t.ValidationContextType = &tlsv3.CommonTlsContext_CombinedValidationContext{CombinedValidationContext: &tlsv3.CommonTlsContext_CombinedCertificateValidationContext{
		DefaultValidationContext:         own,
		ValidationContextSdsSecretConfig: secretRef(r.secretName()),
	}}
}

// nobody is a name that no server has. Where Envoy has no name to ask for it would verify none.
// Source: RFC 2606, section 2.
const nobody = "nobody.invalid"

// sniOf is what clients call a host in TLS: wildcards and addresses have no such name.
// Source: RFC 6066, section 3.
func sniOf(host string) string {
	if _, err := netip.ParseAddr(host); err == nil || strings.HasPrefix(host, "*") {
		return ""
	}
	return host
}

// exactName matches one name of a certificate: a URI, an IP address, an e-mail address or a host.
func exactName(name string) *tlsv3.SubjectAltNameMatcher {
	kind := tlsv3.SubjectAltNameMatcher_DNS
	switch _, err := netip.ParseAddr(name); {
	case strings.Contains(name, "://"):
		kind = tlsv3.SubjectAltNameMatcher_URI
	case err == nil:
		kind = tlsv3.SubjectAltNameMatcher_IP_ADDRESS
	case strings.Contains(name, "@"):
		kind = tlsv3.SubjectAltNameMatcher_EMAIL
	}
	return &tlsv3.SubjectAltNameMatcher{SanType: kind,
		Matcher: &matcherv3.StringMatcher{MatchPattern: &matcherv3.StringMatcher_Exact{Exact: name}}}
}
