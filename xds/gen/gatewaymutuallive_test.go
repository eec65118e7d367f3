package gen

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	tlsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/tls/v3"
	"golang.org/x/tools/txtar"

	"github.com/ashore-mesh/ashore/xds/gen/envoy"
	"github.com/ashore-mesh/ashore/xds/resource"
)

// withSecrets puts what the agent and the control plane would give into listeners.
func (ca *testCA) withSecrets(t *testing.T, listeners []*listenerv3.Listener, own tls.Certificate,
	secrets map[string]*tlsv3.Secret) {
	t.Helper()
	for _, l := range listeners {
		for _, c := range l.FilterChains {
			m := &tlsv3.DownstreamTlsContext{}
			if err := c.TransportSocket.GetTypedConfig().UnmarshalTo(m); err != nil {
				t.Fatal(err)
			}
			common := m.CommonTlsContext
			if common.TlsCertificateSdsSecretConfigs[0].Name == envoy.OwnSecret {
				ca.asAgent(t, common, own)
			} else {
				v := common.GetCombinedValidationContext()
				v.DefaultValidationContext.TrustedCa = secrets[v.ValidationContextSdsSecretConfig.Name].GetValidationContext().TrustedCa
				common.ValidationContextType = &tlsv3.CommonTlsContext_ValidationContext{ValidationContext: v.DefaultValidationContext}
				for _, s := range common.TlsCertificateSdsSecretConfigs {
					common.TlsCertificates = append(common.TlsCertificates, secrets[s.Name].GetTlsCertificate())
				}
				common.TlsCertificateSdsSecretConfigs = nil
			}
			c.TransportSocket.GetTypedConfig().Value = envoy.Packed(m).Value
		}
	}
}

// gatewayFiles has a server of *.example.com show a certificate of the authority, and ask for such
// ones: the settings of its TLS that name files.
func (ca *testCA) gatewayFiles(t *testing.T) string {
	t.Helper()
	server := ca.leaf(t, leafOf{dns: []string{"*.example.com"}})
	key, err := x509.MarshalPKCS8PrivateKey(server.PrivateKey)
	if err != nil {
		t.Fatal(err)
	}
	ca.replace(t, "server.pem", "CERTIFICATE", server.Certificate[0])
	ca.replace(t, "server.key", "PRIVATE KEY", key)
	return fmt.Sprintf("serverCertificate: %s, privateKey: %s, caCertificates: %s", ca.file("server.pem"),
		ca.file("server.key"), ca.file("ca.pem"))
}

// The real Envoy as a gateway asks clients for the certificates that its servers want: of
// authorities in files, of the mesh, or of nobody who shows none.
func TestEnvoyGatewayAsksClients(t *testing.T) {
	t.Parallel()
	const address = "127.0.17.7"
	ca, outside := newTestCA(t), newTestCA(t)
	web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		cert := r.Header.Get("x-forwarded-client-cert")
		_, uri, _ := strings.Cut(cert, "URI=")
		fmt.Fprintf(w, "from %q", uri)
	}))
	t.Cleanup(web.Close)
	files := outside.gatewayFiles(t)
	sc := scopeOf(t, &txtar.Archive{Files: []txtar.File{
		{Name: "node.yaml", Data: []byte("type: router\naddresses: [10.0.0.1]\nnamespace: edge\nidentity: true\n")},
		{Name: "config.yaml", Data: []byte(fmt.Sprintf(`
apiVersion: networking.istio.io/v1
kind: Gateway
metadata: {name: edge, namespace: edge}
spec:
  selector: {}
  servers:
  - {port: {number: 18443, name: a, protocol: HTTPS}, bind: %[1]s, hosts: [mutual.example.com], tls: {mode: MUTUAL, %[2]s, subjectAltNames: [client.example.com]}}
  - {port: {number: 18443, name: b, protocol: HTTPS}, bind: %[1]s, hosts: [optional.example.com], tls: {mode: OPTIONAL_MUTUAL, %[2]s}}
  - {port: {number: 18443, name: c, protocol: HTTPS}, bind: %[1]s, hosts: [mesh.example.com], tls: {mode: ISTIO_MUTUAL}}
---
apiVersion: networking.istio.io/v1
kind: VirtualService
metadata: {name: edge, namespace: edge}
spec: {hosts: ["*.example.com"], gateways: [edge], http: [{route: [{destination: {host: web, port: {number: 80}}}]}]}
`, address, files))},
	}})
	g := New()
	listeners := withRoutesInside(t, g, sc)
	ca.withSecrets(t, listeners, ca.leaf(t, leafOf{uri: "spiffe://cluster.local/ns/edge/sa/gateway"}),
		decoded[*tlsv3.Secret](t, g.Set(resource.SecretType, sc)))
	runEnvoy(t, listeners, []*clusterv3.Cluster{staticCluster("outbound|80||web.edge.svc.cluster.local",
		web.Listener.Addr().String())})

	clients := map[string][]tls.Certificate{
		"none":     nil,
		"client":   {outside.leaf(t, leafOf{dns: []string{"client.example.com"}})},
		"other":    {outside.leaf(t, leafOf{dns: []string{"other.example.com"}})},
		"expired":  {outside.leaf(t, leafOf{dns: []string{"client.example.com"}, notBefore: time.Now().Add(-time.Hour), expiry: time.Now().Add(-time.Minute)})},
		"workload": {ca.leaf(t, leafOf{uri: "spiffe://cluster.local/ns/shop/sa/caller"})},
		"stranger": {ca.leaf(t, leafOf{uri: "spiffe://other.example/ns/shop/sa/caller"})},
	}
	for _, tc := range []struct{ host, client, want string }{
		{"mutual", "client", `from ";DNS=client.example.com"`}, {"mutual", "none", "closed"}, {"mutual", "other", "closed"}, {"mutual", "expired", "closed"}, {"mutual", "workload", "closed"},
		{"optional", "none", `from ""`}, {"optional", "client", `from ";DNS=client.example.com"`}, {"optional", "other", `from ";DNS=other.example.com"`}, {"optional", "expired", "closed"}, {"optional", "workload", "closed"},
		{"mesh", "workload", `from "spiffe://cluster.local/ns/shop/sa/caller"`}, {"mesh", "none", "closed"}, {"mesh", "stranger", "closed"}, {"mesh", "client", "closed"},
	} {
		conn := tls.Client(dialUntil(t, address+":18443"),
			&tls.Config{ServerName: tc.host + ".example.com", Certificates: clients[tc.client],
				InsecureSkipVerify: true})
		if got := requested(conn, tc.host+".example.com"); got != tc.want {
			t.Errorf("%s asks for %s: got %q, want %q", tc.client, tc.host, got, tc.want)
		}
	}
}

// requested sends a request and returns the body of the answer; "closed" when there is none.
func requested(conn io.ReadWriter, host string) string {
	if _, err := fmt.Fprintf(conn, "GET / HTTP/1.1\r\nHost: %s\r\nConnection: close\r\n\r\n", host); err != nil {
		return "closed"
	}
	status, body := answered(conn)
	if status == 0 {
		return "closed"
	}
	return body
}
