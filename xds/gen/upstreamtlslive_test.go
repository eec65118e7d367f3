package gen

import (
	"bufio"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"io"
	"log"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	routerv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/router/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	tcpv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/tcp_proxy/v3"
	"golang.org/x/tools/txtar"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/ashore-mesh/ashore/xds/gen/envoy"
)

// testCA issues and revokes certificates.
type testCA struct {
	folder string
	cert   *x509.Certificate
	root   []byte // cert in DER
	key    *ecdsa.PrivateKey
	serial int64
}

func newTestCA(t *testing.T) *testCA {
	t.Helper()
	ca := &testCA{folder: t.TempDir(), serial: 1}
	ca.key = newTestKey(t)
	ca.cert = &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "test CA"}, SubjectKeyId: []byte{1, 2, 3},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageCRLSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, ca.cert, ca.cert, ca.key.Public(), ca.key)
	if err != nil {
		t.Fatal(err)
	}
	ca.root = der
	ca.replace(t, "ca.pem", "CERTIFICATE", der)
	return ca
}

func newTestKey(t *testing.T) *ecdsa.PrivateKey {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

// file is the path of a file of the CA.
func (ca *testCA) file(name string) string { return filepath.Join(ca.folder, name) }

// replace writes a file beside its place and renames it, as those do who rotate certificates.
func (ca *testCA) replace(t *testing.T, name, kind string, der []byte) {
	t.Helper()
	next := ca.file(name + ".next")
	if err := os.WriteFile(next, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(next, ca.file(name)); err != nil {
		t.Fatal(err)
	}
}

// revoke replaces crl.pem by a list of serial numbers.
func (ca *testCA) revoke(t *testing.T, number int64, serials ...*big.Int) {
	t.Helper()
	list := &x509.RevocationList{Number: big.NewInt(number), ThisUpdate: time.Now().Add(-time.Minute),
		NextUpdate: time.Now().Add(time.Hour)}
	for _, s := range serials {
		list.RevokedCertificateEntries = append(list.RevokedCertificateEntries,
			x509.RevocationListEntry{SerialNumber: s, RevocationTime: time.Now().Add(-time.Minute)})
	}
	der, err := x509.CreateRevocationList(rand.Reader, list, ca.cert, ca.key)
	if err != nil {
		t.Fatal(err)
	}
	ca.replace(t, "crl.pem", "X509 CRL", der)
}

// serve starts a server whose certificate bears a name; it answers with the name that it was called
// by.
func (ca *testCA) serve(t *testing.T, name string) (port int, serial *big.Int) {
	t.Helper()
	ca.serial++
	leaf := &x509.Certificate{
		SerialNumber: big.NewInt(ca.serial), DNSNames: []string{name}, AuthorityKeyId: ca.cert.SubjectKeyId,
		NotBefore: ca.cert.NotBefore, NotAfter: ca.cert.NotAfter,
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	key := newTestKey(t)
	der, err := x509.CreateCertificate(rand.Reader, leaf, ca.cert, key.Public(), ca.key)
	if err != nil {
		t.Fatal(err)
	}
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprintf(w, "called %q", r.TLS.ServerName)
	}))
	s.TLS = &tls.Config{Certificates: []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: key}}}
	s.Config.ErrorLog = log.New(io.Discard, "", 0) // clients that refuse the certificate are what is tested
	s.StartTLS()
	t.Cleanup(s.Close)
	return s.Listener.Addr().(*net.TCPAddr).Port, leaf.SerialNumber
}

// scopeOfText is the scope of a sidecar with a configuration.
func scopeOfText(t *testing.T, text string) *controlPlane {
	t.Helper()
	sc := scopeOf(t, &txtar.Archive{Files: []txtar.File{
		{Name: "node.yaml", Data: []byte("addresses: [10.0.0.9]\nnamespace: shop\n")}, {Name: "config.yaml", Data: []byte(text)},
	}})
	return &controlPlane{g: New(), scope: sc, nacks: make(chan string, 100)}
}

// tlsService declares a service with one endpoint and how clients speak TLS to it.
func tlsService(name, host, protocol string, port int, more, settings string) string {
	return fmt.Sprintf(`
apiVersion: networking.istio.io/v1
kind: ServiceEntry
metadata: {name: %[1]s, namespace: shop}
spec: {hosts: ["%[2]s"], ports: [{number: 80, name: %[3]s}], resolution: STATIC, endpoints: [{address: 127.0.0.1, ports: {%[3]s: %[4]d}}]%[5]s}
---
apiVersion: networking.istio.io/v1
kind: DestinationRule
metadata: {name: %[1]s, namespace: shop}
spec: {host: "%[2]s", trafficPolicy: {tls: %[6]s}}
---
`, name, host, protocol, port, more, settings)
}

// passOn listens on a port of a loopback address and passes everything on to a cluster, as
// connections or as requests.
func passOn(address string, port uint32, cluster string, requests bool) *listenerv3.Listener {
	f := envoy.NetworkFilter("envoy.filters.network.tcp_proxy", &tcpv3.TcpProxy{StatPrefix: "test",
		ClusterSpecifier: &tcpv3.TcpProxy_Cluster{Cluster: cluster}})
	if requests {
		f = envoy.NetworkFilter("envoy.filters.network.http_connection_manager", &hcmv3.HttpConnectionManager{
			StatPrefix:  "test",
			HttpFilters: []*hcmv3.HttpFilter{envoy.HTTPFilter("envoy.filters.http.router", &routerv3.Router{})},
			RouteSpecifier: &hcmv3.HttpConnectionManager_RouteConfig{RouteConfig: &routev3.RouteConfiguration{
				ValidateClusters: wrapperspb.Bool(false),
				VirtualHosts: []*routev3.VirtualHost{{Name: "all", Domains: []string{"*"}, Routes: []*routev3.Route{{
					Match:  &routev3.RouteMatch{PathSpecifier: &routev3.RouteMatch_Prefix{Prefix: "/"}},
					Action: &routev3.Route_Route{Route: &routev3.RouteAction{ClusterSpecifier: &routev3.RouteAction_Cluster{Cluster: cluster}}},
				}}}},
			}},
		})
	}
	return &listenerv3.Listener{
		Name: fmt.Sprint(port), Address: envoy.SocketAddress(address, port),
		FilterChains: []*listenerv3.FilterChain{{Filters: []*listenerv3.Filter{f}}},
	}
}

// ask sends a request for a host and returns the answer's body, "503" for that status, or "closed".
func ask(t *testing.T, address, host string) string {
	t.Helper()
	conn := dialUntil(t, address)
	defer conn.Close()
	if _, err := fmt.Fprintf(conn, "GET / HTTP/1.1\r\nHost: %s\r\nConnection: close\r\n\r\n", host); err != nil {
		return "closed"
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

// answered reads the answer to a request; status zero: there is none, or not all of it.
func answered(conn io.Reader) (status int, body string) {
	resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		return 0, ""
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		return 0, ""
	}
	return resp.StatusCode, string(text)
}

// The real Envoy refuses servers that do not prove the name that they were meant by, whatever kind
// of traffic reaches them, and calls them by that name.
func TestEnvoyVerifiesNames(t *testing.T) {
	t.Parallel()
	const address = "127.201.8.1"
	ca := newTestCA(t)
	simple := fmt.Sprintf("{mode: SIMPLE, caCertificates: %s}", ca.file("ca.pem"))
	web, _ := ca.serve(t, "web.example.com")
	wild, _ := ca.serve(t, "*.wild.example.com")
	const named = ", subjectAltNames: [web.example.com]"
	var text strings.Builder
	text.WriteString(tlsService("tcp", "web.example.com", "tcp", web, "", simple))
	text.WriteString(tlsService("tcp-other", "tcp.other.example.com", "tcp", web, "", simple))
	text.WriteString(tlsService("tcp-named", "tcp.named.example.com", "tcp", web, named, simple))
	text.WriteString(tlsService("tcp-misnamed", "tcp.misnamed.example.com", "tcp", wild, named, simple))
	text.WriteString(tlsService("tcp-wild", "*.wild.example.com", "tcp", wild, "", simple))
	text.WriteString(tlsService("tcp-not-wild", "*.example.com", "tcp", web, "", simple))
	text.WriteString(tlsService("http", "http.wild.example.com", "http", wild, "", simple))
	text.WriteString(tlsService("http-other", "http.other.example.com", "http", web, "", simple))
	text.WriteString(tlsService("http-named", "http.named.example.com", "http", web, named, simple))
	text.WriteString(tlsService("http-misnamed", "http.misnamed.example.com", "http", wild, named, simple))
	text.WriteString(tlsService("http-any", "*.any.example.com", "http", web, "", simple))
	tests := []struct {
		name, host string
		requests   bool
		asked      string
		want       string
	}{
		{"tcp: the service's host", "web.example.com", false, "x", `called "web.example.com"`},
		{"tcp: another host", "tcp.other.example.com", false, "x", "closed"},
		{"tcp: the names of the service", "tcp.named.example.com", false, "x", `called "tcp.named.example.com"`},
		{"tcp: none of the names of the service", "tcp.misnamed.example.com", false, "x", "closed"},
		{"tcp: the certificate of all hosts of the domain", "*.wild.example.com", false, "x", `called ""`},
		{"tcp: the certificate of one host of the domain", "*.example.com", false, "x", "closed"},
		{"connections to an http port: the service's host", "http.wild.example.com", false, "x", `called "http.wild.example.com"`},
		{"connections to an http port: another host", "http.other.example.com", false, "web.example.com", "closed"},
		{"connections to an http port: the names of the service", "http.named.example.com", false, "x", `called "http.named.example.com"`},
		{"connections to an http port: none of the names of the service", "http.misnamed.example.com", false, "x", "closed"},
		{"connections to an http port: a wildcard names nobody", "*.any.example.com", false, "web.example.com", "closed"},
		{"requests: the request's host", "http.other.example.com", true, "web.example.com", `called "web.example.com"`},
		{"requests: another host", "http.other.example.com", true, "http.other.example.com", "503"},
		{"requests: a port behind the host", "http.other.example.com", true, "web.example.com:80", `called "web.example.com"`},
		{"requests: an address, which the certificate lacks", "http.wild.example.com", true, "10.1.2.3", "503"},
		{"requests: the names of the service", "http.named.example.com", true, "x.example.com", `called "x.example.com"`},
		{"requests: none of the names of the service", "http.misnamed.example.com", true, "http.wild.example.com", "503"},
		{"requests to a wildcard: the request's host", "*.any.example.com", true, "web.example.com", `called "web.example.com"`},
		{"requests to a wildcard: another host", "*.any.example.com", true, "x.any.example.com", "503"},
		{"requests to a wildcard: an address, which the certificate lacks", "*.any.example.com", true, "10.1.2.3", "503"},
	}
	var listeners []*listenerv3.Listener
	for i, tt := range tests {
		listeners = append(listeners, passOn(address, uint32(18000+i), envoy.OutboundCluster(80, "", tt.host), tt.requests))
	}
	c := scopeOfText(t, text.String())
	admin := managedEnvoy(t, startControlPlane(t, c), listeners...)
	awaitClusters(t, c, admin)
	for i, tt := range tests {
		if got := ask(t, fmt.Sprintf("%s:%d", address, 18000+i), tt.asked); got != tt.want {
			t.Errorf("%s: got %s, want %s", tt.name, got, tt.want)
		}
	}
}

// A list of revocations takes effect as soon as its file is replaced: the real Envoy refuses what
// has been revoked, and takes it again when the list no longer names it.
func TestEnvoyReadsRevocationsAnew(t *testing.T) {
	t.Parallel()
	const address = "127.201.8.2"
	ca := newTestCA(t)
	port, serial := ca.serve(t, "web.example.com")
	other, _ := ca.serve(t, "other.example.com")
	ca.revoke(t, 1)
	settings := fmt.Sprintf("{mode: SIMPLE, caCertificates: %s, caCrl: %s}", ca.file("ca.pem"), ca.file("crl.pem"))
	c := scopeOfText(t, tlsService("web", "web.example.com", "tcp", port, "", settings)+tlsService("other",
		"other.example.com", "tcp", other, "", settings))
	admin := managedEnvoy(t, startControlPlane(t, c),
		passOn(address, 18000, "outbound|80||web.example.com", false), passOn(address, 18001,
			"outbound|80||other.example.com", false))
	awaitClusters(t, c, admin)
	await := func(step, want string) {
		t.Helper()
		for deadline := time.Now().Add(20 * time.Second); ; time.Sleep(20 * time.Millisecond) {
			got := ask(t, address+":18000", "x")
			if got == want {
				break
			}
			if time.Now().After(deadline) {
				t.Fatalf("%s: got %s, want %s", step, got, want)
			}
		}
		if got := ask(t, address+":18001", "x"); got != `called "other.example.com"` {
			t.Errorf("%s: the other service: got %s", step, got)
		}
	}
	await("nothing is revoked", `called "web.example.com"`)
	ca.revoke(t, 2, serial)
	await("revoked", "closed")
	ca.revoke(t, 3)
	await("no longer revoked", `called "web.example.com"`)
}
