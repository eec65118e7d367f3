package webhook

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/ashore-mesh/ashore/internal/testlog"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// newServer makes one that does not listen.
func newServer(t testing.TB, c Config) *Server {
	t.Helper()
	if c.Listener == nil {
		c.Listener = nowhere{}
	}
	if c.Certificate == nil {
		c.Certificate = func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return nil, nil }
	}
	if c.Log == nil {
		c.Log = testlog.New(t)
	}
	return New(c)
}

// nowhere is a listener that nobody reaches.
type nowhere struct{ net.Listener }

// post asks a server without a network.
func post(s *Server, target, contentType, body string, header ...string) *httptest.ResponseRecorder {
	r := httptest.NewRequest(http.MethodPost, target, strings.NewReader(body))
	r.Header.Set("Content-Type", contentType)
	for i := 0; i+1 < len(header); i += 2 {
		r.Header.Add(header[i], header[i+1])
	}
	w := httptest.NewRecorder()
	s.ServeHTTP(w, r)
	return w
}

// ask has an AdmissionReview with a request answered.
func ask(t testing.TB, s *Server, request string) response {
	t.Helper()
	w := post(s, reviewPath+"?timeout=10s", jsonType, reviewOf(request))
	if w.Code != http.StatusOK {
		t.Fatalf("status %d: %s", w.Code, w.Body)
	}
	return decodeResponse(t, w.Body.Bytes())
}

func decodeResponse(t testing.TB, body []byte) response {
	t.Helper()
	var out review
	d := json.NewDecoder(bytes.NewReader(body))
	d.DisallowUnknownFields()
	if err := d.Decode(&out); err != nil {
		t.Fatalf("%v: %s", err, body)
	}
	if out.APIVersion != reviewVersion || out.Kind != reviewKind || out.Response == nil {
		t.Fatalf("not the answer to a review: %s", body)
	}
	return *out.Response
}

func reviewOf(request string) string {
	return `{"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": ` + request + `}`
}

// authority certifies servers of tests.
type authority struct {
	pool *x509.CertPool
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

func newAuthority(t testing.TB) *authority {
	t.Helper()
	a := &authority{pool: x509.NewCertPool(), key: newKey(t)}
	a.cert = certify(t, &x509.Certificate{SerialNumber: big.NewInt(1), IsCA: true, BasicConstraintsValid: true,
		KeyUsage: x509.KeyUsageCertSign}, nil, a.key, a.key)
	a.pool.AddCert(a.cert)
	return a
}

// server is a certificate with a serial number.
func (a *authority) server(t testing.TB, serial int64) *tls.Certificate {
	t.Helper()
	key := newKey(t)
	c := certify(t, &x509.Certificate{SerialNumber: big.NewInt(serial), IPAddresses: []net.IP{net.IPv4(127, 0, 72, 1)},
		DNSNames: []string{"localhost"}}, a.cert, key, a.key)
	return &tls.Certificate{Certificate: [][]byte{c.Raw}, PrivateKey: key, Leaf: c}
}

func newKey(t testing.TB) *ecdsa.PrivateKey {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

func certify(t testing.TB, template, parent *x509.Certificate, key, signer *ecdsa.PrivateKey) *x509.Certificate {
	t.Helper()
	template.NotBefore, template.NotAfter = time.Now().Add(-time.Hour), time.Now().Add(time.Hour)
	if parent == nil {
		parent = template
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, &key.PublicKey, signer)
	if err != nil {
		t.Fatal(err)
	}
	c, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// world is a server that runs.
type world struct {
	*Server
	url         string
	authority   *authority
	certificate atomic.Pointer[tls.Certificate]
}

// run starts a server; it ends with the test.
func run(t testing.TB, c Config) *world {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.72.1:0")
	if err != nil {
		t.Fatal(err)
	}
	w := &world{url: "https://" + l.Addr().String(), authority: newAuthority(t)}
	w.certificate.Store(w.authority.server(t, 2))
	c.Listener, c.Certificate = l, func(*tls.ClientHelloInfo) (*tls.Certificate, error) {
		return w.certificate.Load(),
			nil
	}
	w.Server = newServer(t, c)
	done := make(chan error, 1)
	go func() { done <- w.Run(t.Context()) }()
	t.Cleanup(func() { // the test's context has ended
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	return w
}

// client trusts the server's authority.
func (w *world) client(t testing.TB, change func(*http.Transport)) *http.Client {
	t.Helper()
	tr := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: w.authority.pool}, ForceAttemptHTTP2: true}
	if change != nil {
		change(tr)
	}
	t.Cleanup(tr.CloseIdleConnections)
	return &http.Client{Transport: tr, Timeout: 30 * time.Second}
}

// dial opens a connection with TLS.
func (w *world) dial(t testing.TB) *tls.Conn {
	t.Helper()
	c, err := tls.Dial("tcp", w.config.Listener.Addr().String(), &tls.Config{RootCAs: w.authority.pool})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() }) // the server may have
	return c
}
