package cluster

import (
	"cmp"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	tlsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/tls/v3"

	"github.com/ashore-mesh/ashore/xds/gen/destination"
	"github.com/ashore-mesh/ashore/xds/gen/envoy"
	"github.com/ashore-mesh/ashore/xds/gen/secret"
)

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
func (s clusterShape) applyTLS(c *clusterv3.Cluster, h *upstreamHTTP, identities []string) {
	t, peer, http, m := s.policy.Tls, s.peer, s.protocol.IsHTTP(), s.mesh
	if !destination.UsesTLS(t) {
		return
	}
	names := t.SubjectAltNames
	if len(names) == 0 {
		names = identities
	}
	verify := !t.InsecureSkipVerify.GetValue()
	anyName := verify && len(names) == 0
	tls := &tlsv3.UpstreamTlsContext{Sni: cmp.Or(t.Sni, envoy.SNIOf(peer)), CommonTlsContext: envoy.ClientTLS(m)}
	switch {
	case t.Sni != "":
		tls.AutoSniSanValidation = anyName
	case http:
		// a client that does not know the later field still verifies requests by the older one
		h.upstream.AutoSni = true
		h.upstream.AutoSanValidation = anyName
		tls.AutoSniSanValidation = anyName
		if anyName && tls.Sni == "" {
			tls.Sni = envoy.Nobody
		}
	case anyName:
		names = []string{peer}
	}
	if h.protocol == upstreamHTTP2 {
		tls.CommonTlsContext.AlpnProtocols = []string{"h2"}
	}
	secret.Client(tls.CommonTlsContext, t, s.router || s.policy.Selected, names)
	c.TransportSocket = envoy.TLSSocket(tls)
}
