package testkube

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// keys writes keys and certificates of a cluster into a folder: ca.pem; NAME.pem and NAME-key.pem of
// the server and the administrator; and accounts.pem and accounts-key.pem, which sign the tokens of
// ServiceAccounts.
type keys struct {
	dir string
	ca  *x509.Certificate
	key crypto.Signer // of ca
}

func newKeys(t testing.TB, dir string) keys {
	t.Helper()
	k := keys{dir: dir, key: newKey(t)}
	k.ca = k.sign(t, &x509.Certificate{Subject: pkix.Name{CommonName: "test"}, IsCA: true,
		KeyUsage: x509.KeyUsageCertSign}, k.key.Public())
	k.write(t, "ca.pem", "CERTIFICATE", k.ca.Raw)
	k.pair(t, "server", &x509.Certificate{Subject: pkix.Name{CommonName: "kube-apiserver"},
		DNSNames: []string{"localhost", "kubernetes.default.svc"}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}})
	k.pair(t, "admin", &x509.Certificate{
		Subject:     pkix.Name{CommonName: "admin", Organization: []string{"system:masters"}},
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}})
	accounts := newKey(t)
	k.writeKey(t, "accounts", accounts)
	public, err := x509.MarshalPKIXPublicKey(accounts.Public())
	if err != nil {
		t.Fatal(err)
	}
	k.write(t, "accounts.pem", "PUBLIC KEY", public)
	return k
}

// admin returns how the administrator connects.
func (k keys) admin(t testing.TB) *tls.Config {
	t.Helper()
	pair, err := tls.LoadX509KeyPair(filepath.Join(k.dir, "admin.pem"), filepath.Join(k.dir, "admin-key.pem"))
	if err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	roots.AddCert(k.ca)
	return &tls.Config{Certificates: []tls.Certificate{pair}, RootCAs: roots}
}

// pair writes a new key and a certificate for it.
func (k keys) pair(t testing.TB, name string, template *x509.Certificate) {
	t.Helper()
	key := newKey(t)
	k.writeKey(t, name, key)
	k.write(t, name+".pem", "CERTIFICATE", k.sign(t, template, key.Public()).Raw)
}

// sign returns a certificate of the CA. Without a CA it is self-signed.
func (k keys) sign(t testing.TB, template *x509.Certificate, public crypto.PublicKey) *x509.Certificate {
	t.Helper()
	template.SerialNumber = big.NewInt(time.Now().UnixNano())
	template.NotBefore, template.NotAfter = time.Now().Add(-time.Hour), time.Now().Add(24*time.Hour)
	template.BasicConstraintsValid = true
	template.KeyUsage |= x509.KeyUsageDigitalSignature
	parent := k.ca
	if parent == nil {
		parent = template
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, public, k.key)
	if err != nil {
		t.Fatal(err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return cert
}

func newKey(t testing.TB) *ecdsa.PrivateKey {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

func (k keys) writeKey(t testing.TB, name string, key *ecdsa.PrivateKey) {
	t.Helper()
	der, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	k.write(t, name+"-key.pem", "EC PRIVATE KEY", der)
}

func (k keys) write(t testing.TB, name, kind string, der []byte) {
	t.Helper()
	text := pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der})
	if err := os.WriteFile(filepath.Join(k.dir, name), text, 0o600); err != nil {
		t.Fatal(err)
	}
}
