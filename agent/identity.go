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
	"crypto/x509/pkix"
	"encoding/hex"
	"encoding/pem"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/ashore-mesh/ashore/ca"
	"github.com/ashore-mesh/ashore/internal/spiffe"
)

// Identity is who a workload is and how it proves that: a key, the certificates that lead from it
// to a root, and the roots that it trusts. Immutable: the pointer is the version.
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

// Leaf is the workload's own certificate.
func (i *Identity) Leaf() *x509.Certificate { return i.Chain[0] }

// Serial is the serial number of the certificate, as people and Envoy write it: hexadecimal.
func (i *Identity) Serial() string { return serialText(i.Leaf()) }

func serialText(c *x509.Certificate) string { return hex.EncodeToString(c.SerialNumber.Bytes()) }

// Life is how long the certificate is valid in all.
func (i *Identity) Life() time.Duration { return i.Leaf().NotAfter.Sub(i.Leaf().NotBefore) }

// Certificate is what it presents to others.
func (i *Identity) Certificate() *tls.Certificate {
	c := &tls.Certificate{PrivateKey: i.Key, Leaf: i.Leaf()}
	for _, x := range i.Chain {
		c.Certificate = append(c.Certificate, x.Raw)
	}
	return c
}

// withRoots is the identity with another trust bundle.
func (i *Identity) withRoots(roots []*x509.Certificate) *Identity {
	out := *i
	out.Roots = roots
	return &out
}

// newIdentity puts an identity together and checks that its parts fit: the key is the
// certificate's, which names a workload. Errors say what does not fit.
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

// rooted says why the certificate leads to none of the roots; nil when it leads to one. That it has
// ended is another matter: it is judged by when it began. A root that is taken out of the mesh
// takes its certificates with it.
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

// sameCertificates says whether two lists hold the same certificates, in any order.
func sameCertificates(a, b []*x509.Certificate) bool {
	in := func(list []*x509.Certificate) func(*x509.Certificate) bool {
		return func(c *x509.Certificate) bool { return !slices.ContainsFunc(list, c.Equal) }
	}
	return !slices.ContainsFunc(a, in(b)) && !slices.ContainsFunc(b, in(a))
}

// hashOf is the hash that a join line names a root certificate by.
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

// newRequest is a certificate signing request for key, in PEM. It asks for no name: the authority
// gives the one that was proven.
func newRequest(key crypto.Signer) ([]byte, error) {
	der, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{Subject: pkix.Name{}}, key)
	if err != nil {
		return nil, fmt.Errorf("make a certificate signing request: %w", err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: der}), nil
}

// parseAnswer reads what an authority answered: the leaf, the intermediates one by one, and all
// roots as the last.
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

// parseRoots reads a trust bundle. It is refused whole when a part of it cannot be a root, or when
// there is none: with an empty bundle no peer could be verified.
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
