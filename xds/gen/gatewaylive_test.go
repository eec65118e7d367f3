package gen

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	tlsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/tls/v3"
	networking "istio.io/api/networking/v1alpha3"

	"github.com/ashore-mesh/ashore/push"
)

// withFilesInside puts the files of secrets into the listeners that name them, so that an Envoy
// without a control plane can run them.
func withFilesInside(t *testing.T, listeners []*listenerv3.Listener, secrets map[string]*tlsv3.Secret) []*listenerv3.Listener {
	t.Helper()
	for _, l := range listeners {
		for _, c := range l.FilterChains {
			if c.TransportSocket == nil {
				continue
			}
			m := &tlsv3.DownstreamTlsContext{}
			if err := c.TransportSocket.GetTypedConfig().UnmarshalTo(m); err != nil {
				t.Fatal(err)
			}
			for _, s := range m.CommonTlsContext.TlsCertificateSdsSecretConfigs {
				m.CommonTlsContext.TlsCertificates = append(m.CommonTlsContext.TlsCertificates, secrets[s.Name].GetTlsCertificate())
			}
			m.CommonTlsContext.TlsCertificateSdsSecretConfigs = nil
			c.TransportSocket.GetTypedConfig().Value = packed(m).Value
		}
	}
	return listeners
}

// writeCertificate writes the certificate of a test server to files.
func writeCertificate(t *testing.T, s *httptest.Server) (chain, key string) {
	t.Helper()
	cert := s.TLS.Certificates[0]
	der, err := x509.MarshalPKCS8PrivateKey(cert.PrivateKey)
	if err != nil {
		t.Fatal(err)
	}
	chain, key = filepath.Join(t.TempDir(), "chain.pem"), filepath.Join(t.TempDir(), "key.pem")
	for file, block := range map[string]*pem.Block{
		chain: {Type: "CERTIFICATE", Bytes: cert.Certificate[0]},
		key:   {Type: "PRIVATE KEY", Bytes: der},
	} {
		if err := os.WriteFile(file, pem.EncodeToMemory(block), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return chain, key
}

// A router in the real Envoy ends TLS with files, for requests and for connections, passes it through
// by name, and forwards connections.
func TestEnvoyIsAGateway(t *testing.T) {
	t.Parallel()
	const address = "127.201.7.4"
	web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprintf(w, "web over %s", r.Header.Get("x-forwarded-proto"))
	}))
	t.Cleanup(web.Close)
	own := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "passed through") }))
	t.Cleanup(own.Close)
	chain, key := writeCertificate(t, own)
	simple := &networking.ServerTLSSettings{Mode: networking.ServerTLSSettings_SIMPLE, ServerCertificate: chain, PrivateKey: key, MinProtocolVersion: networking.ServerTLSSettings_TLSV1_3}
	pass := &networking.ServerTLSSettings{Mode: networking.ServerTLSSettings_PASSTHROUGH}
	bind := func(s *networking.Server) *networking.Server {
		s.Bind = address
		return s
	}
	to := func(host string) []*networking.RouteDestination {
		return []*networking.RouteDestination{tcpRoute(host, 1, 0)}
	}
	routes := []*push.VirtualService{
		testVS("web", &networking.VirtualService{Hosts: []string{"web.example"}, Gateways: []string{"edge/edge"}, Http: []*networking.HTTPRoute{{
			Route: []*networking.HTTPRouteDestination{{Destination: &networking.Destination{Host: "web", Port: &networking.PortSelector{Number: 1}}}},
		}}}),
		testVS("raw", &networking.VirtualService{Hosts: []string{"raw.example"}, Gateways: []string{"edge/edge"}, Tcp: []*networking.TCPRoute{{Route: to("raw")}}}),
		testVS("pass", &networking.VirtualService{Hosts: []string{"*.pass.example"}, Gateways: []string{"edge/edge"}, Tls: []*networking.TLSRoute{
			{Match: []*networking.TLSMatchAttributes{{SniHosts: []string{"*.pass.example"}}}, Route: to("own")},
		}}),
	}
	sc := testRouter(testGateway("edge", routes,
		bind(testServer(18443, "HTTPS", simple, "web.example")), bind(testServer(18443, "TLS", simple, "raw.example")),
		bind(testServer(18443, "TLS", pass, "*.pass.example")), bind(testServer(19000, "TCP", nil, "raw.example")),
	))
	g := New()
	listeners := withFilesInside(t, withRoutesInside(t, g, sc), decoded[*tlsv3.Secret](t, g.Set(SecretType, sc)))
	raw := tcpServer(t, "raw")
	runEnvoy(t, listeners, []*clusterv3.Cluster{
		staticCluster("outbound|1||web", web.Listener.Addr().String()),
		staticCluster("outbound|1||raw", raw),
		staticCluster("outbound|1||own", own.Listener.Addr().String()),
	})

	say := func(name string, conn net.Conn) {
		t.Helper()
		if _, err := io.WriteString(conn, "hello\n"); err != nil {
			t.Fatal(err)
		}
		expectText(t, name, conn, "raw got hello\n")
	}
	say("tcp", dialUntil(t, address+":19000"))
	raw2 := tls.Client(dialUntil(t, address+":18443"), &tls.Config{InsecureSkipVerify: true, ServerName: "raw.example", NextProtos: []string{"h2"}})
	if err := raw2.HandshakeContext(t.Context()); err == nil && raw2.ConnectionState().NegotiatedProtocol != "" {
		t.Errorf("a server that forwards connections agreed on %q", raw2.ConnectionState().NegotiatedProtocol)
	}
	say("tls ended, connection forwarded", raw2)

	client := &http.Client{Transport: &http.Transport{
		DisableKeepAlives: true,
		ForceAttemptHTTP2: true,
		TLSClientConfig:   &tls.Config{InsecureSkipVerify: true}, // the certificate is another name's
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "tcp", address+":18443")
		},
	}}
	for target, want := range map[string]string{"https://web.example:18443/": "web over https", "https://a.pass.example:18443/": "passed through"} {
		resp, err := client.Get(target)
		if err != nil {
			t.Errorf("%s: %v", target, err)
			continue
		}
		expectText(t, target, resp.Body, want)
		if err := resp.Body.Close(); err != nil {
			t.Error(err)
		}
		if want == "web over https" && (resp.ProtoMajor != 2 || resp.TLS.Version != tls.VersionTLS13) {
			t.Errorf("%s: got HTTP/%d over TLS %x, want HTTP/2 over TLS 1.3", target, resp.ProtoMajor, resp.TLS.Version)
		}
	}
}
