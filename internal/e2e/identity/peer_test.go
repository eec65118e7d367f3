package identity

import (
	"bufio"
	"cmp"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/hex"
	"encoding/pem"
	"fmt"
	"io"
	"math/big"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/ashore-mesh/ashore/ca"
	"github.com/ashore-mesh/ashore/internal/e2e/harness"
)

// meshTLS is how a peer of the mesh speaks, with that certificate; who is there is looked at by the
// test.
func meshTLS(c *tls.Certificate) *tls.Config {
	config := &tls.Config{InsecureSkipVerify: true, NextProtos: []string{"istio", "http/1.1"},
		MinVersion: tls.VersionTLS12}
	if c != nil {
		config.Certificates = []tls.Certificate{*c}
	}
	return config
}

// peer is one connection to a proxy, from the test.
type peer struct {
	net.Conn
	in *bufio.Reader
	// path is that of requests; "/" when empty.
	path string
}

// connect opens one: with mutual TLS, or in plaintext when config is nil.
func connect(t *testing.T, address string, config *tls.Config) (*peer, error) {
	t.Helper()
	conn, err := net.DialTimeout("tcp", address, 10*time.Second)
	if err != nil {
		return nil, err
	}
	t.Cleanup(func() { _ = conn.Close() }) // the peer may have cut it
	if err := conn.SetDeadline(time.Now().Add(2 * time.Minute)); err != nil {
		return nil, err
	}
	if config != nil {
		secure := tls.Client(conn, config)
		if err := secure.HandshakeContext(t.Context()); err != nil {
			return nil, err
		}
		conn = secure
	}
	return &peer{Conn: conn, in: bufio.NewReader(conn)}, nil
}

// get is the answer to a request for web on the connection, which stays open.
func (p *peer) get() (status int, body string, err error) {
	if _, err := fmt.Fprintf(p, "GET %s HTTP/1.1\r\nhost: web.test\r\n\r\n", cmp.Or(p.path, "/")); err != nil {
		return 0, "", err
	}
	resp, err := http.ReadResponse(p.in, nil)
	if err != nil {
		return 0, "", err
	}
	text, err := io.ReadAll(resp.Body)
	if err == nil {
		err = resp.Body.Close()
	}
	return resp.StatusCode, string(text), err
}

// line says whether the TCP application answers on the connection.
func (p *peer) line() error {
	if _, err := fmt.Fprintln(p, "hello"); err != nil {
		return err
	}
	for {
		text, err := p.in.ReadString('\n')
		if err != nil {
			return err
		}
		if text == "hello\n" { // before it comes the greeting
			return nil
		}
	}
}

// request connects, and asks for web once.
func request(t *testing.T, address string, config *tls.Config) (int, error) {
	t.Helper()
	p, err := connect(t, address, config)
	if err != nil {
		return 0, err
	}
	defer func() { _ = p.Close() }() // the peer may have cut it
	status, _, err := p.get()
	return status, err
}

// leafOf is the certificate of an identity, read.
func leafOf(t *testing.T, id *harness.Identity) *x509.Certificate {
	t.Helper()
	leaf, err := x509.ParseCertificate(id.Certificate.Certificate[0])
	if err != nil {
		t.Fatal(err)
	}
	return leaf
}

// digest is how Envoy and revocations name a certificate.
func digest(c *x509.Certificate) string {
	sum := sha256.Sum256(c.Raw)
	return hex.EncodeToString(sum[:])
}

// uri is the identity of a certificate.
func uri(c *x509.Certificate) string {
	var all []string
	for _, u := range c.URIs {
		all = append(all, u.String())
	}
	return strings.Join(all, " ")
}

// forger signs what it is asked to, with the key of the mesh's authority or another.
type forger struct {
	signer *ca.Signer
	chain  [][]byte
}

// stolen has the key that ashored signs with.
func stolen(t *testing.T, m *harness.Mesh) forger {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(m.State, "ca", "intermediate-key.pem"))
	if err != nil {
		t.Fatal(err)
	}
	key, err := ca.DecodeKey(text)
	if err != nil {
		t.Fatal(err)
	}
	_, rest := pem.Decode(text)
	certs, err := ca.DecodeCertificates(rest)
	if err != nil {
		t.Fatal(err)
	}
	return forger{signer: &ca.Signer{Cert: certs[0], Key: key}, chain: [][]byte{certs[0].Raw}}
}

// foreign is the root of another mesh.
func foreign(t *testing.T) forger {
	t.Helper()
	return forger{signer: newRoot(t, "foreign")}
}

func newRoot(t *testing.T, name string) *ca.Signer {
	t.Helper()
	key := ca.NewKey()
	root, err := ca.NewRoot(name, 90*24*time.Hour, key, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	return root
}

// issue makes a certificate of that identity, which begins and ends so long from now.
func (f forger) issue(t *testing.T, id string, begins, ends time.Duration) *tls.Certificate {
	t.Helper()
	key := ca.NewKey()
	name, err := url.Parse(id)
	if err != nil {
		t.Fatal(err)
	}
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 120))
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.CreateCertificate(rand.Reader, &x509.Certificate{
		SerialNumber: serial, URIs: []*url.URL{name}, NotBefore: time.Now().Add(begins), NotAfter: time.Now().Add(ends),
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth,
			x509.ExtKeyUsageServerAuth},
	}, f.signer.Cert, key.Public(), f.signer.Key)
	if err != nil {
		t.Fatal(err)
	}
	return &tls.Certificate{Certificate: append([][]byte{der}, f.chain...), PrivateKey: key}
}
