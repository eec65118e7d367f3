package agent

import (
	"bytes"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/hex"
	"encoding/pem"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/ashore-mesh/ashore/ca"
	"github.com/ashore-mesh/ashore/internal/spiffe"
)

// Identity is a workload's key, the certificates that lead from it to a root, and the roots that it
// trusts. It is immutable: the pointer is the version.
type Identity struct {
	// ID is what the certificate names.
	ID spiffe.ID
	// Key is the private key. It never leaves the machine.
	Key crypto.Signer
	// Chain is the certificate and its intermediates, the leaf first, without a root.
	Chain []*x509.Certificate
	// Roots are the trust bundle; at least one.
	Roots []*x509.Certificate
}

// Leaf returns the workload's own certificate.
func (i *Identity) Leaf() *x509.Certificate { return i.Chain[0] }

// Serial returns the certificate's serial number in hexadecimal, as Envoy writes it.
func (i *Identity) Serial() string { return serialText(i.Leaf()) }

func serialText(c *x509.Certificate) string { return hex.EncodeToString(c.SerialNumber.Bytes()) }

// Life returns how long the certificate is valid from begin to end.
func (i *Identity) Life() time.Duration { return i.Leaf().NotAfter.Sub(i.Leaf().NotBefore) }

// Certificate returns the key and the chain for TLS.
func (i *Identity) Certificate() *tls.Certificate {
	c := &tls.Certificate{PrivateKey: i.Key, Leaf: i.Leaf()}
	for _, x := range i.Chain {
		c.Certificate = append(c.Certificate, x.Raw)
	}
	return c
}

// withRoots returns the identity with another trust bundle.
func (i *Identity) withRoots(roots []*x509.Certificate) *Identity {
	out := *i
	out.Roots = roots
	return &out
}

// newIdentity makes an identity. It checks that the certificate is for the key and names a
// workload.
func newIdentity(key crypto.Signer, chain, roots []*x509.Certificate) (*Identity, error) {
	if len(chain) == 0 || len(roots) == 0 {
		return nil, errors.New("there is no certificate, or no root certificate")
	}
	leaf := chain[0]
	if k, ok := leaf.PublicKey.(interface{ Equal(crypto.PublicKey) bool }); !ok || !k.Equal(key.Public()) {
		return nil, errors.New("the certificate is for another key")
	}
	id, err := spiffe.Of(leaf)
	if err != nil {
		return nil, err
	}
	return &Identity{ID: id, Key: key, Chain: chain, Roots: roots}, nil
}

// rooted returns an error if the certificate leads to none of the roots. Expiry does not count.
func (i *Identity) rooted() error {
	leaf := i.Leaf()
	opts := x509.VerifyOptions{Roots: pool(i.Roots), Intermediates: pool(i.Chain[1:]),
		CurrentTime: leaf.NotBefore.Add(time.Second),
		KeyUsages:   []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}}
	if _, err := leaf.Verify(opts); err != nil {
		return fmt.Errorf("the certificate does not lead to a root of the mesh: %w", err)
	}
	return nil
}

func pool(certs []*x509.Certificate) *x509.CertPool {
	p := x509.NewCertPool()
	for _, c := range certs {
		p.AddCert(c)
	}
	return p
}

// sameCertificates reports whether two lists hold the same certificates, in any order.
func sameCertificates(a, b []*x509.Certificate) bool {
	in := func(list []*x509.Certificate) func(*x509.Certificate) bool {
		return func(c *x509.Certificate) bool { return !slices.ContainsFunc(list, c.Equal) }
	}
	return !slices.ContainsFunc(a, in(b)) && !slices.ContainsFunc(b, in(a))
}

// hashOf returns the hash by which a join command names a root certificate.
func hashOf(c *x509.Certificate) string {
	sum := sha256.Sum256(c.Raw)
	return hashPrefix + hex.EncodeToString(sum[:])
}

// hashPrefix names the algorithm in front of a hash.
const hashPrefix = "sha256:"

// newKey makes a private key: ECDSA on P-256.
func newKey() (crypto.Signer, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("make a private key: %w", err)
	}
	return key, nil
}

// newRequest returns a certificate signing request for key, in PEM. It has no subject: the
// authority decides the name.
func newRequest(key crypto.Signer) ([]byte, error) {
	der, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{}, key)
	if err != nil {
		return nil, fmt.Errorf("make a certificate signing request: %w", err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: der}), nil
}

// parseAnswer reads the answer of an authority: the leaf, the intermediates one by one, and all
// roots in the last element.
func parseAnswer(key crypto.Signer, elements []string) (*Identity, error) {
	if len(elements) < 2 {
		return nil, fmt.Errorf("%d certificates came, want the workload's own and the roots", len(elements))
	}
	last := len(elements) - 1
	var chain []*x509.Certificate
	for i, text := range elements[:last] {
		certs, err := ca.DecodeCertificates([]byte(text))
		if err != nil {
			return nil, fmt.Errorf("element %d of the chain: %w", i+1, err)
		}
		chain = append(chain, certs...)
	}
	roots, err := parseRoots(elements[last:])
	if err != nil {
		return nil, fmt.Errorf("the roots: %w", err)
	}
	id, err := newIdentity(key, chain, roots)
	if err != nil {
		return nil, err
	}
	return id, id.rooted()
}

// parseRoots reads a trust bundle. It refuses the whole bundle if it is empty, or if any part of it
// cannot be a root.
func parseRoots(pems []string) ([]*x509.Certificate, error) {
	var roots []*x509.Certificate
	for _, text := range pems {
		if len(bytes.TrimSpace([]byte(text))) == 0 {
			continue
		}
		certs, err := ca.DecodeCertificates([]byte(text))
		if err != nil {
			return nil, err
		}
		for _, c := range certs {
			if !c.IsCA {
				return nil, fmt.Errorf("%s is not the certificate of an authority", serialText(c))
			}
			if !slices.ContainsFunc(roots, c.Equal) {
				roots = append(roots, c)
			}
		}
	}
	if len(roots) == 0 {
		return nil, errors.New("there is no root certificate in it")
	}
	return roots, nil
}
