package harness

import (
	"cmp"
	"crypto/ecdsa"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"testing"
	"time"

	"github.com/ashore-mesh/ashore/ca"
)

// CA issues certificates for tests.
type CA struct {
	// Pool trusts it.
	Pool *x509.CertPool

	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

// NewCA makes one that lives for an hour.
func NewCA(t testing.TB) *CA {
	t.Helper()
	c := &CA{Pool: x509.NewCertPool()}
	c.cert, c.key = c.issue(t, x509.Certificate{Subject: pkix.Name{CommonName: "test CA"}, IsCA: true,
		BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign})
	c.Pool.AddCert(c.cert)
	return c
}

// PEM is its certificate.
func (c *CA) PEM() []byte { return ca.EncodeCertificates(c.cert) }

// Issue makes a certificate for host, as a server and as a client, and its key, both PEM.
func (c *CA) Issue(t testing.TB, host string) (cert, key []byte) {
	t.Helper()
	x, signer := c.issue(t, x509.Certificate{DNSNames: []string{host}, KeyUsage: x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}})
	key, err := ca.EncodeKey(signer)
	if err != nil {
		t.Fatal(err)
	}
	return ca.EncodeCertificates(x), key
}

// issue signs a certificate for a new key; the first one signs itself.
func (c *CA) issue(t testing.TB, template x509.Certificate) (*x509.Certificate, *ecdsa.PrivateKey) {
	t.Helper()
	template.NotBefore, template.NotAfter = time.Now().Add(-time.Minute), time.Now().Add(time.Hour)
	key := ca.NewKey()
	der, err := x509.CreateCertificate(rand.Reader, &template, cmp.Or(c.cert, &template), key.Public(), cmp.Or(c.key, key))
	if err != nil {
		t.Fatal(err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return cert, key
}
