package gen

import (
	"bufio"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"io"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"
	"time"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	tlsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/tls/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/protobuf/encoding/protojson"
	networking "istio.io/api/networking/v1alpha3"

	"github.com/ashore-mesh/ashore/internal/testenvoy"
	"github.com/ashore-mesh/ashore/push"
	"github.com/ashore-mesh/ashore/xds/gen/envoy"
	"github.com/ashore-mesh/ashore/xds/resource"
)

// withFilesInside puts the files of secrets into the listeners that name them, so that an Envoy
// without a control plane can run them.
func withFilesInside(t *testing.T, listeners []*listenerv3.Listener,
	secrets map[string]*tlsv3.Secret) []*listenerv3.Listener {
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
				m.CommonTlsContext.TlsCertificates = append(m.CommonTlsContext.TlsCertificates,
					secrets[s.Name].GetTlsCertificate())
			}
			m.CommonTlsContext.TlsCertificateSdsSecretConfigs = nil
			c.TransportSocket.GetTypedConfig().Value = envoy.Packed(m).Value
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

// A router in the real Envoy ends TLS with files, for requests and for connections, passes it
// through by name, and forwards connections.
func TestEnvoyIsAGateway(t *testing.T) {
	t.Parallel()
	const address = "127.201.7.4"
	web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprintf(w, "web over %s", r.Header.Get("x-forwarded-proto"))
	}))
	t.Cleanup(web.Close)
	own := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter,
		_ *http.Request) {
		fmt.Fprint(w, "passed through")
	}))
	t.Cleanup(own.Close)
	chain, key := writeCertificate(t, own)
	simple := &networking.ServerTLSSettings{Mode: networking.ServerTLSSettings_SIMPLE, ServerCertificate: chain,
		PrivateKey: key, MinProtocolVersion: networking.ServerTLSSettings_TLSV1_3}
	pass := &networking.ServerTLSSettings{Mode: networking.ServerTLSSettings_PASSTHROUGH}
	bind := func(s *networking.Server) *networking.Server {
		s.Bind = address
		return s
	}
	to := func(host string) []*networking.RouteDestination {
		return []*networking.RouteDestination{tcpRoute(host, 1, 0)}
	}
	routes := []*push.VirtualService{
		testVS("web", &networking.VirtualService{Hosts: []string{"web.example"}, Gateways: []string{"edge/edge"},
			Http: []*networking.HTTPRoute{{
				Route: []*networking.HTTPRouteDestination{{Destination: &networking.Destination{Host: "web",
					Port: &networking.PortSelector{Number: 1}}}},
			}}}),
		testVS("raw", &networking.VirtualService{Hosts: []string{"raw.example"}, Gateways: []string{"edge/edge"},
			Tcp: []*networking.TCPRoute{{Route: to("raw")}}}),
		testVS("pass", &networking.VirtualService{Hosts: []string{"*.pass.example"}, Gateways: []string{"edge/edge"},
			Tls: []*networking.TLSRoute{
				{Match: []*networking.TLSMatchAttributes{{SniHosts: []string{"*.pass.example"}}}, Route: to("own")},
			}}),
	}
	sc := testRouter(testGateway("edge", routes,
		bind(testServer(18443, "HTTPS", simple, "web.example")), bind(testServer(18443, "TLS", simple, "raw.example")),
		bind(testServer(18443, "TLS", pass, "*.pass.example")), bind(testServer(19000, "TCP", nil, "raw.example")),
	))
	g := New()
	listeners := withFilesInside(t, withRoutesInside(t, g, sc), decoded[*tlsv3.Secret](t, g.Set(resource.SecretType, sc)))
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
	raw2 := tls.Client(dialUntil(t, address+":18443"),
		&tls.Config{InsecureSkipVerify: true, ServerName: "raw.example", NextProtos: []string{"h2"}})
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
	for target, want := range map[string]string{"https://web.example:18443/": "web over https",
		"https://a.pass.example:18443/": "passed through"} {
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

// The real Envoy finds relative files of certificates below the folder that it was started in, and
// takes them anew when they are replaced. SIMPLE with caCertificates asks clients for no
// certificate, and httpsRedirect redirects no HTTPS.
func TestEnvoyReadsRelativeFiles(t *testing.T) { // not parallel: it changes the folder
	const address = "127.201.7.5"
	web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "web") }))
	t.Cleanup(web.Close)
	t.Setenv("ENVOY", testenvoy.Path(t))
	t.Chdir(t.TempDir())
	first := writeOwnCertificate(t, "first")
	if err := os.WriteFile("ca.pem", first, 0o600); err != nil {
		t.Fatal(err)
	}
	server := testServer(18443, "HTTPS", &networking.ServerTLSSettings{
		Mode: networking.ServerTLSSettings_SIMPLE, ServerCertificate: "chain.pem", PrivateKey: "key.pem", CaCertificates: "ca.pem", HttpsRedirect: true,
	}, "web.example")
	server.Bind = address
	route := &networking.HTTPRoute{Route: []*networking.HTTPRouteDestination{{Destination: tcpRoute("web", 1,
		0).Destination}}}
	vs := testVS("web", &networking.VirtualService{Hosts: []string{"web.example"}, Gateways: []string{"edge/edge"},
		Http: []*networking.HTTPRoute{route}})
	sc := testRouter(testGateway("edge", []*push.VirtualService{vs}, server))
	g := New()
	listeners := withRoutesInside(t, g, sc)
	secretsFromFile(t, listeners, g.Set(resource.SecretType, sc))
	runEnvoy(t, listeners, []*clusterv3.Cluster{staticCluster("outbound|1||web", web.Listener.Addr().String())})

	// asks returns who answers, by the certificate, or why nobody does.
	asks := func() string {
		conn := tls.Client(dialUntil(t, address+":18443"),
			&tls.Config{InsecureSkipVerify: true, ServerName: "web.example"})
		if err := conn.HandshakeContext(t.Context()); err != nil {
			return err.Error() // until the secret is there
		}
		fmt.Fprint(conn, "GET / HTTP/1.1\r\nHost: web.example\r\nConnection: close\r\n\r\n")
		resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		if resp.StatusCode != http.StatusOK {
			t.Errorf("got %s, want 200", resp.Status)
		}
		return conn.ConnectionState().PeerCertificates[0].Subject.CommonName
	}
	until := func(want string) {
		t.Helper()
		deadline := time.Now().Add(20 * time.Second)
		for got := asks(); got != want; got = asks() {
			if time.Now().After(deadline) {
				t.Fatalf("answered by %q, want %q", got, want)
			}
			<-time.After(20 * time.Millisecond)
		}
	}
	until("first")
	writeOwnCertificate(t, "second")
	until("second")
}

// writeOwnCertificate puts a self-signed certificate into chain.pem and its key into key.pem of
// this folder, by rename.
func writeOwnCertificate(t *testing.T, name string) []byte {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	now := time.Now()
	template := &x509.Certificate{SerialNumber: big.NewInt(now.UnixNano()), Subject: pkix.Name{CommonName: name},
		NotBefore: now.Add(-time.Hour), NotAfter: now.Add(time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	keyDER, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	chain := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	for file, text := range map[string][]byte{"chain.pem": chain,
		"key.pem": pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: keyDER})} {
		if err := os.WriteFile(file+".new", text, 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(file+".new", file); err != nil {
			t.Fatal(err)
		}
	}
	return chain
}

// secretsFromFile has listeners take their secrets from a file, as an Envoy without a control plane
// can.
func secretsFromFile(t *testing.T, listeners []*listenerv3.Listener, set resource.Set) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "secrets.json")
	answer := &discoveryv3.DiscoveryResponse{TypeUrl: resource.SecretType}
	for _, s := range decoded[*tlsv3.Secret](t, set) {
		answer.Resources = append(answer.Resources, envoy.Packed(s))
	}
	text, err := protojson.Marshal(answer)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, text, 0o600); err != nil {
		t.Fatal(err)
	}
	source := &corev3.ConfigSource{
		ResourceApiVersion:    corev3.ApiVersion_V3,
		ConfigSourceSpecifier: &corev3.ConfigSource_PathConfigSource{PathConfigSource: &corev3.PathConfigSource{Path: file}},
	}
	for _, l := range listeners {
		for _, c := range l.FilterChains {
			m := &tlsv3.DownstreamTlsContext{}
			if err := c.TransportSocket.GetTypedConfig().UnmarshalTo(m); err != nil {
				t.Fatal(err)
			}
			for _, s := range m.CommonTlsContext.TlsCertificateSdsSecretConfigs {
				s.SdsConfig = source
			}
			c.TransportSocket.GetTypedConfig().Value = envoy.Packed(m).Value
		}
	}
}
