package gen

import (
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"io"
	"log"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strconv"
	"strings"
	"testing"
	"time"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	proxyprotocolv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/listener/proxy_protocol/v3"
	tlsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/tls/v3"
	"golang.org/x/tools/txtar"

	"github.com/ashore-mesh/ashore/push"
	"github.com/ashore-mesh/ashore/xds/gen/envoy"
	"github.com/ashore-mesh/ashore/xds/resource"
)

// leafOf is what a certificate says; the zero value of a time stands for the CA's own.
type leafOf struct {
	uri               string
	dns               []string
	notBefore, expiry time.Time
}

// leaf issues a certificate.
func (ca *testCA) leaf(t *testing.T, l leafOf) tls.Certificate {
	t.Helper()
	ca.serial++
	cert := &x509.Certificate{
		SerialNumber: big.NewInt(ca.serial), DNSNames: l.dns, AuthorityKeyId: ca.cert.SubjectKeyId,
		NotBefore: ca.cert.NotBefore, NotAfter: ca.cert.NotAfter, KeyUsage: x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	if l.uri != "" {
		u, err := url.Parse(l.uri)
		if err != nil {
			t.Fatal(err)
		}
		cert.URIs = []*url.URL{u}
	}
	if !l.expiry.IsZero() {
		cert.NotBefore, cert.NotAfter = l.notBefore, l.expiry
	}
	key := newTestKey(t)
	der, err := x509.CreateCertificate(rand.Reader, cert, ca.cert, key.Public(), ca.key)
	if err != nil {
		t.Fatal(err)
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}
}

// asAgent puts what the agent would give into a context: a certificate and the roots.
func (ca *testCA) asAgent(t *testing.T, c *tlsv3.CommonTlsContext, own tls.Certificate) {
	t.Helper()
	key, err := x509.MarshalPKCS8PrivateKey(own.PrivateKey)
	if err != nil {
		t.Fatal(err)
	}
	inline := func(kind string, der []byte) *corev3.DataSource {
		return &corev3.DataSource{Specifier: &corev3.DataSource_InlineBytes{InlineBytes: pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der})}}
	}
	v := c.GetCombinedValidationContext()
	if got := v.GetValidationContextSdsSecretConfig().GetName(); got != envoy.RootsSecret ||
		len(c.TlsCertificateSdsSecretConfigs) != 1 || c.TlsCertificateSdsSecretConfigs[0].Name != envoy.OwnSecret {
		t.Fatalf("the agent is asked for %q and %v", got, c.TlsCertificateSdsSecretConfigs)
	}
	c.TlsCertificateSdsSecretConfigs = nil
	c.TlsCertificates = []*tlsv3.TlsCertificate{{CertificateChain: inline("CERTIFICATE", own.Certificate[0]),
		PrivateKey: inline("PRIVATE KEY", key)}}
	v.DefaultValidationContext.TrustedCa = &corev3.DataSource{Specifier: &corev3.DataSource_Filename{Filename: ca.file("ca.pem")}}
	c.ValidationContextType = &tlsv3.CommonTlsContext_ValidationContext{ValidationContext: v.DefaultValidationContext}
}

// withIdentity puts the certificate of a workload into listeners.
func (ca *testCA) withIdentity(t *testing.T, listeners []*listenerv3.Listener, own tls.Certificate) {
	t.Helper()
	for _, l := range listeners {
		for _, c := range append(l.FilterChains[:len(l.FilterChains):len(l.FilterChains)], l.DefaultFilterChain) {
			if c.GetTransportSocket() == nil {
				continue
			}
			m := &tlsv3.DownstreamTlsContext{}
			if err := c.TransportSocket.GetTypedConfig().UnmarshalTo(m); err != nil {
				t.Fatal(err)
			}
			ca.asAgent(t, m.CommonTlsContext, own)
			c.TransportSocket.GetTypedConfig().Value = envoy.Packed(m).Value
		}
	}
}

// inboundAt are the listeners of redirected connections to a workload under a PeerAuthentication,
// on an address of their own, where clients say by the PROXY protocol what they had connected to.
func inboundAt(t *testing.T, ca *testCA, address, mode string, own tls.Certificate,
	trust *push.Trust) []*listenerv3.Listener {
	t.Helper()
	sc := scopeOf(t, &txtar.Archive{Files: []txtar.File{
		{Name: "node.yaml", Data: []byte("addresses: [10.0.0.1]\nnamespace: shop\nlabels: {app: web}\nidentity: true\n")},
		{Name: "mesh.yaml", Data: []byte("trustDomainAliases: [old.example]\n")},
		{Name: "config.yaml", Data: []byte(`
apiVersion: networking.istio.io/v1
kind: ServiceEntry
metadata: {name: web, namespace: shop}
spec:
  hosts: [web.example]
  location: MESH_INTERNAL
  ports: [{number: 8080, name: http}, {number: 9090, name: tcp}, {number: 9191, name: x}, {number: 9443, name: https}]
  resolution: STATIC
  endpoints: [{address: 10.0.0.1, serviceAccount: web}]
---
apiVersion: security.istio.io/v1
kind: PeerAuthentication
metadata: {name: all, namespace: shop}
spec: {mtls: {mode: ` + mode + `}}
`)},
	}})
	sc.Trust = trust
	var out []*listenerv3.Listener
	for _, l := range withRoutesInside(t, New(), sc) {
		if l.Name != "virtualInbound" {
			continue
		}
		l.Name, l.Address, l.AdditionalAddresses = mode, envoy.SocketAddress(address, 15006), nil
		if l.ListenerFilters[0].Name != "envoy.filters.listener.original_dst" {
			t.Fatalf("the first filter is %s", l.ListenerFilters[0].Name)
		}
		l.ListenerFilters[0] = envoy.ListenerFilter("envoy.filters.listener.proxy_protocol",
			&proxyprotocolv3.ProxyProtocol{})
		out = append(out, l)
	}
	ca.withIdentity(t, out, own)
	return out
}

// caller is how somebody calls: in plaintext when config is nil.
type caller struct{ config *tls.Config }

// call connects as redirected to a port, says something and returns the answer, "closed" when there
// is none.
func (c caller) call(t *testing.T, address string, port int, say string) string {
	t.Helper()
	conn := dialUntil(t, address)
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(20 * time.Second)); err != nil {
		t.Fatal(err)
	}
	if port != 0 {
		if _, err := fmt.Fprintf(conn, "PROXY TCP4 10.0.0.9 10.0.0.1 40000 %d\r\n", port); err != nil {
			t.Fatal(err)
		}
	}
	if c.config != nil {
		conn = tls.Client(conn, c.config)
	}
	if _, err := io.WriteString(conn, say); err != nil {
		return "closed"
	}
	if !strings.HasPrefix(say, "GET ") {
		text, err := io.ReadAll(conn)
		if err != nil || len(text) == 0 {
			return "closed"
		}
		return string(text)
	}
	switch status, body := answered(conn); status {
	case 0:
		return "closed"
	case http.StatusOK:
		return body
	default:
		return strconv.Itoa(status)
	}
}

// The real Envoy takes connections as PeerAuthentication says: under STRICT neither plaintext, nor
// a foreign certificate, nor one of another trust domain, nor one that has expired, at no port,
// known or not; under PERMISSIVE both; under DISABLE all is the workload's own.
func TestEnvoyTakesPeers(t *testing.T) {
	t.Parallel()
	ca, foreign := newTestCA(t), newTestCA(t)
	const callerID = "spiffe://cluster.local/ns/shop/sa/caller"
	web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprintf(w, "from %s", r.Header.Get("x-forwarded-client-cert"))
	}))
	t.Cleanup(web.Close)
	secure := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter,
		_ *http.Request) {
		fmt.Fprint(w, "secure")
	}))
	secure.Config.ErrorLog = log.New(io.Discard, "", 0)
	secure.StartTLS()
	t.Cleanup(secure.Close)

	own := ca.leaf(t, leafOf{uri: "spiffe://cluster.local/ns/shop/sa/web"})
	at := map[string]string{"STRICT": "127.0.17.1", "PERMISSIVE": "127.0.17.2", "DISABLE": "127.0.17.3"}
	var listeners []*listenerv3.Listener
	for mode, address := range at {
		listeners = append(listeners, inboundAt(t, ca, address, mode, own, nil)...)
	}
	runEnvoy(t, listeners, []*clusterv3.Cluster{
		staticCluster("inbound|8080||", web.Listener.Addr().String()), staticCluster("inbound|9090||",
			tcpServer(t, "tcp")),
		staticCluster("inbound|9191||", web.Listener.Addr().String()), staticCluster("inbound|9443||",
			secure.Listener.Addr().String()),
		staticCluster(envoy.InboundPassthrough, web.Listener.Addr().String()), {Name: envoy.BlackHole,
			ClusterDiscoveryType: &clusterv3.Cluster_Type{Type: clusterv3.Cluster_STATIC}},
	})

	with := func(alpn []string, certs ...tls.Certificate) caller {
		// the server's certificate is looked at elsewhere
		return caller{&tls.Config{Certificates: certs, NextProtos: alpn, InsecureSkipVerify: true}}
	}
	mesh := []string{"istio"}
	leaf := func(l leafOf) tls.Certificate { return ca.leaf(t, l) }
	hour := time.Now().Add(time.Hour)
	callers := map[string]caller{
		"plaintext":         {},
		"peer":              with(mesh, leaf(leafOf{uri: callerID})),
		"peer, HTTP":        with([]string{"istio-http/1.1", "istio"}, leaf(leafOf{uri: callerID})),
		"alias":             with(mesh, leaf(leafOf{uri: "spiffe://old.example/ns/shop/sa/caller"})),
		"foreign":           with(mesh, foreign.leaf(t, leafOf{uri: callerID})),
		"trust domain":      with(mesh, leaf(leafOf{uri: "spiffe://other.example/ns/shop/sa/caller"})),
		"trust domain+":     with(mesh, leaf(leafOf{uri: "spiffe://cluster.local.example/ns/shop/sa/caller"})),
		"control plane":     with(mesh, leaf(leafOf{uri: "spiffe://cluster.local/ashore/control-plane", dns: []string{"istiod.istio-system.svc"}})),
		"no URI":            with(mesh, leaf(leafOf{dns: []string{"spiffe://cluster.local/ns/shop/sa/caller"}})),
		"expired":           with(mesh, leaf(leafOf{uri: callerID, notBefore: time.Now().Add(-time.Hour), expiry: time.Now().Add(-time.Minute)})),
		"not yet":           with(mesh, leaf(leafOf{uri: callerID, notBefore: time.Now().Add(time.Minute * 10), expiry: hour})),
		"no certificate":    with(mesh),
		"own TLS":           with(nil),
		"own TLS with leaf": with([]string{"http/1.1"}, leaf(leafOf{uri: callerID})),
	}
	by := "By=spiffe://cluster.local/ns/shop/sa/web;"
	const get, hello = "GET / HTTP/1.1\r\nHost: web.example\r\nConnection: close\r\n\r\n", "hello\n"
	for _, tc := range []struct {
		caller                      string
		port                        int
		say                         string
		strict, permissive, disable string
	}{
		{"plaintext", 8080, get, "closed", "from ", "from "},
		{"plaintext", 9090, hello, "closed", "tcp got hello", "tcp got hello"},
		{"plaintext", 9191, get, "closed", "from ", "from "},
		{"plaintext", 7777, get, "closed", "from ", "from "},
		{"peer", 8080, get, by, by, "closed"},
		{"peer", 9090, hello, "tcp got hello", "tcp got hello", "closed"},
		{"peer", 9191, get, "from ", "from ", "closed"},
		{"peer, HTTP", 9191, get, by, by, "closed"},
		{"peer, HTTP", 8080, get, by, by, "closed"},
		{"peer", 7777, get, "from ", "from ", "closed"},
		{"peer, HTTP", 7777, get, by, by, "closed"},
		{"alias", 8080, get, "URI=spiffe://old.example/ns/shop/sa/caller", "URI=spiffe://old.example/ns/shop/sa/caller", "closed"},
		{"alias", 9090, hello, "tcp got hello", "tcp got hello", "closed"},
		{"own TLS", 9443, get, "closed", "secure", "secure"},
		{"own TLS with leaf", 9443, get, "400", "secure", "secure"}, // ends as mutual TLS, and the workload expects its own
		{"own TLS with leaf", 8080, get, "URI=" + callerID, "closed", "closed"},
	} {
		for mode, want := range map[string]string{"STRICT": tc.strict, "PERMISSIVE": tc.permissive,
			"DISABLE": tc.disable} {
			if got := callers[tc.caller].call(t, at[mode]+":15006", tc.port, tc.say); !strings.Contains(got, want) {
				t.Errorf("%s, %s to port %d: got %q, want %q", mode, tc.caller, tc.port, got, want)
			}
		}
	}
	forged := strings.Replace(get, "\r\n\r\n",
		"\r\nX-Forwarded-Client-Cert: URI=spiffe://cluster.local/ns/shop/sa/forged\r\n\r\n", 1)
	for _, mode := range []string{"PERMISSIVE", "DISABLE"} {
		for _, port := range []int{8080, 9191, 7777} {
			if got := callers["plaintext"].call(t, at[mode]+":15006", port, forged); !strings.Contains(got, "from ") ||
				strings.Contains(got, "forged") {
				t.Errorf("%s: who shows no certificate tells port %d of one: got %q", mode, port, got)
			}
		}
	}
	for _, name := range []string{"foreign", "trust domain", "trust domain+", "control plane", "no URI", "expired",
		"not yet", "no certificate"} {
		for _, mode := range []string{"STRICT", "PERMISSIVE"} {
			for port, say := range map[int]string{8080: get, 9090: hello, 9191: get, 9443: get, 7777: get} {
				if got := callers[name].call(t, at[mode]+":15006", port, say); got != "closed" {
					t.Errorf("%s, %s to port %d: got %q, want it to be closed", mode, name, port, got)
				}
			}
		}
	}
}

// clientClusters are the clusters of a client with an identity, with their endpoints inside.
func clientClusters(t *testing.T, ca *testCA, text string, own tls.Certificate) []*clusterv3.Cluster {
	t.Helper()
	sc := scopeOf(t, &txtar.Archive{Files: []txtar.File{
		{Name: "node.yaml", Data: []byte("addresses: [10.0.0.9]\nnamespace: shop\nidentity: true\n")}, {Name: "config.yaml", Data: []byte(text)},
	}})
	g := New()
	assignments := decoded[*endpointv3.ClusterLoadAssignment](t, g.Set(resource.EndpointType, sc))
	var out []*clusterv3.Cluster
	for _, c := range decoded[*clusterv3.Cluster](t, g.Set(resource.ClusterType, sc)) {
		if c.GetType() != clusterv3.Cluster_EDS {
			continue
		}
		c.ClusterDiscoveryType, c.EdsClusterConfig, c.LoadAssignment = &clusterv3.Cluster_Type{Type: clusterv3.Cluster_STATIC}, nil, assignments[c.Name]
		sockets := []*corev3.TransportSocket{c.TransportSocket}
		for _, m := range c.TransportSocketMatches {
			sockets = append(sockets, m.TransportSocket)
		}
		for _, s := range sockets {
			if s == nil {
				continue
			}
			m := &tlsv3.UpstreamTlsContext{}
			if err := s.GetTypedConfig().UnmarshalTo(m); err != nil {
				t.Fatal(err)
			}
			ca.asAgent(t, m.CommonTlsContext, own)
			s.GetTypedConfig().Value = envoy.Packed(m).Value
		}
		out = append(out, c)
	}
	return out
}

// peerServer is a server of the mesh with a certificate, which asks clients for theirs and says
// what it saw.
func (ca *testCA) peerServer(t *testing.T, own tls.Certificate) int {
	t.Helper()
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprintf(w, "%v called %s", r.TLS.PeerCertificates[0].URIs, r.TLS.ServerName)
	}))
	pool := x509.NewCertPool()
	root, err := x509.ParseCertificate(ca.root)
	if err != nil {
		t.Fatal(err)
	}
	pool.AddCert(root)
	// without protocols of its own, which would have to be among those that the client offers
	s.Listener = tls.NewListener(s.Listener, &tls.Config{Certificates: []tls.Certificate{own},
		ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: pool})
	s.Config.ErrorLog = log.New(io.Discard, "", 0)
	s.Start()
	t.Cleanup(s.Close)
	return s.Listener.Addr().(*net.TCPAddr).Port
}

// The real Envoy speaks mutual TLS to who takes it, and to nobody who is not who the endpoint
// should be. Where endpoints name no service account, every certificate of the mesh's roots will
// do.
func TestEnvoyCallsPeers(t *testing.T) {
	t.Parallel()
	const address = "127.0.17.4"
	ca, foreign := newTestCA(t), newTestCA(t)
	const webID = "spiffe://cluster.local/ns/shop/sa/web"
	plain := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter,
		_ *http.Request) {
		fmt.Fprint(w, "plain")
	}))
	t.Cleanup(plain.Close)
	plainPort := plain.Listener.Addr().(*net.TCPAddr).Port
	right := ca.peerServer(t, ca.leaf(t, leafOf{uri: webID}))
	wrong := ca.peerServer(t, ca.leaf(t, leafOf{uri: "spiffe://cluster.local/ns/shop/sa/other"}))
	elsewhere := ca.peerServer(t, ca.leaf(t, leafOf{uri: "spiffe://other.example/ns/shop/sa/web"}))
	outside := ca.peerServer(t, foreign.leaf(t, leafOf{uri: webID}))
	expired := ca.peerServer(t, ca.leaf(t, leafOf{uri: webID, notBefore: time.Now().Add(-time.Hour),
		expiry: time.Now().Add(-time.Minute)}))

	service := func(name string, port int, account, labels, rule string) string {
		text := fmt.Sprintf(`
apiVersion: networking.istio.io/v1
kind: ServiceEntry
metadata: {name: %[1]s, namespace: shop}
spec: {hosts: [%[1]s.example], ports: [{number: 80, name: http}], resolution: STATIC, location: MESH_INTERNAL, endpoints: [{address: 127.0.0.1, ports: {http: %[2]d}, serviceAccount: "%[3]s", labels: {%[4]s}}]}
---
`, name, port, account, labels)
		if rule != "" {
			text += fmt.Sprintf("apiVersion: networking.istio.io/v1\nkind: DestinationRule\nmetadata: {name: %[1]s, namespace: shop}\nspec: {host: %[1]s.example, trafficPolicy: {tls: %[2]s}}\n---\n", name, rule)
		}
		return text
	}
	called := "[spiffe://cluster.local/ns/shop/sa/caller] called "
	tests := []struct {
		name          string
		port          int
		account, mark string
		rule          string
		want          string
	}{
		{"auto", right, "web", "", "", called + "outbound_.80_._.auto.example"},
		{"wrong", wrong, "web", "", "", "503"},
		{"elsewhere", elsewhere, "web", "", "", "503"},
		{"outside", outside, "web", "", "", "503"},
		{"expired", expired, "web", "", "", "503"},
		{"auto-plain", plainPort, "", "", "", "plain"},
		{"denied", plainPort, "web", "app: plain", "", "plain"},
		{"marked", wrong, "", "security.istio.io/tlsMode: istio", "", called + "outbound_.80_._.marked.example"},
		{"marked-outside", outside, "", "security.istio.io/tlsMode: istio", "", "503"},
		{"switched-off", plainPort, "web", "", "{mode: DISABLE}", "plain"},
		{"always", wrong, "", "", "{mode: ISTIO_MUTUAL}", called + "outbound_.80_._.always.example"},
		{"always-wrong", wrong, "web", "", "{mode: ISTIO_MUTUAL}", "503"},
		{"always-outside", outside, "", "", "{mode: ISTIO_MUTUAL}", "503"},
		{"always-expired", expired, "", "", "{mode: ISTIO_MUTUAL}", "503"},
		{"always-plain", plainPort, "", "", "{mode: ISTIO_MUTUAL}", "503"},
		{"named", wrong, "", "", `{mode: ISTIO_MUTUAL, sni: x.example, subjectAltNames: ["spiffe://cluster.local/ns/shop/sa/other"]}`, called + "x.example"},
		{"misnamed", right, "web", "", `{mode: ISTIO_MUTUAL, subjectAltNames: ["spiffe://cluster.local/ns/shop/sa/other"]}`, "503"},
	}
	text := "apiVersion: security.istio.io/v1\nkind: PeerAuthentication\nmetadata: {name: plain, namespace: shop}\nspec: {selector: {matchLabels: {app: plain}}, mtls: {mode: DISABLE}}\n---\n"
	var listeners []*listenerv3.Listener
	for i, tc := range tests {
		text += service(tc.name, tc.port, tc.account, tc.mark, tc.rule)
		listeners = append(listeners, passOn(address, uint32(18000+i), "outbound|80||"+tc.name+".example", true))
	}
	runEnvoy(t, listeners, clientClusters(t, ca, text,
		ca.leaf(t, leafOf{uri: "spiffe://cluster.local/ns/shop/sa/caller"})))
	for i, tc := range tests {
		if got := ask(t, fmt.Sprintf("%s:%d", address, 18000+i), tc.name+".example"); got != tc.want {
			t.Errorf("%s: got %q, want %q", tc.name, got, tc.want)
		}
	}
}

// Two real Envoys speak mutual TLS with one another, and the workload learns who calls.
func TestEnvoysMeetAsPeers(t *testing.T) {
	t.Parallel()
	const server, client = "127.0.17.5", "127.0.17.6"
	peersMeet(t, newTestCA(t), server, client, nil)
	for _, port := range []string{":18080", ":18081"} {
		got := ask(t, client+port, "web.example")
		if !strings.HasPrefix(got, "By=spiffe://cluster.local/ns/shop/sa/web;Hash=") ||
			!strings.HasSuffix(got, ";URI=spiffe://cluster.local/ns/shop/sa/caller") {
			t.Errorf("%s: got %q, want both identities", port, got)
		}
	}
}

// peersMeet starts two Envoys: that of a server, on port 8080, and that of a client, which calls it
// by HTTP/1 for who connects to port 18080, and by HTTP/2 for port 18081. The answer is whom the
// server's sees.
func peersMeet(t *testing.T, ca *testCA, server, client string, trust *push.Trust) {
	t.Helper()
	web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		fmt.Fprintf(w, "%s", r.Header.Get("x-forwarded-client-cert"))
	}))
	t.Cleanup(web.Close)
	listeners := inboundAt(t, ca, server, "STRICT", ca.leaf(t, leafOf{uri: "spiffe://cluster.local/ns/shop/sa/web"}),
		trust)
	for _, l := range listeners { // the client does not speak the PROXY protocol: the port is the listener's own
		l.Address, l.ListenerFilters = envoy.SocketAddress(server, 8080), l.ListenerFilters[1:]
	}
	at := web.Listener.Addr().String()
	runEnvoy(t, listeners, []*clusterv3.Cluster{
		staticCluster("inbound|8080||", at), staticCluster("inbound|9090||", at), staticCluster("inbound|9191||",
			at), staticCluster("inbound|9443||", at),
		staticCluster(envoy.InboundPassthrough, at), {Name: envoy.BlackHole,
			ClusterDiscoveryType: &clusterv3.Cluster_Type{Type: clusterv3.Cluster_STATIC}},
	})
	text := strings.ReplaceAll(`
apiVersion: networking.istio.io/v1
kind: ServiceEntry
metadata: {name: web, namespace: shop}
spec: {hosts: [web.example], ports: [{number: 80, name: http, targetPort: 8080}, {number: 81, name: grpc, targetPort: 8080}], resolution: STATIC, location: MESH_INTERNAL, endpoints: [{address: SERVER, serviceAccount: web}]}
`, "SERVER", server)
	runEnvoy(t, []*listenerv3.Listener{passOn(client, 18080, "outbound|80||web.example", true),
		passOn(client, 18081, "outbound|81||web.example", true)},
		clientClusters(t, ca, text, ca.leaf(t, leafOf{uri: "spiffe://cluster.local/ns/shop/sa/caller"})))
	dialUntil(t, server+":8080")
}
