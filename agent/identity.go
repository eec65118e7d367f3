package agent

import (
	"crypto"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/hex"
	"encoding/pem"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"time"

	"github.com/ashore-mesh/ashore/ca"
	"github.com/ashore-mesh/ashore/internal/peername"
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
	// Roots are the trust bundle.
	Roots *ca.Bundle
}

// Leaf returns the workload's own certificate.
func (i *Identity) Leaf() *x509.Certificate { return i.Chain[0] }

// peerName returns what telemetry says of the workload. Empty: the certificate does not say it.
func (i *Identity) peerName() peername.Name {
	n, _ := peername.Parse(strings.Join(i.Leaf().DNSNames, ","))
	return n
}

// Serial returns the certificate's serial number in hexadecimal, as Envoy writes it.
func (i *Identity) Serial() string { return serialText(i.Leaf()) }

func serialText(c *x509.Certificate) string { return hex.EncodeToString(c.SerialNumber.Bytes()) }

// Certificate returns the key and the chain for TLS.
func (i *Identity) Certificate() *tls.Certificate {
	c := &tls.Certificate{PrivateKey: i.Key, Leaf: i.Leaf()}
	for _, x := range i.Chain {
		c.Certificate = append(c.Certificate, x.Raw)
	}
	return c
}

// newIdentity makes an identity. It checks that the certificate is for the key and names a
// workload.
func newIdentity(key crypto.Signer, chain []*x509.Certificate, roots *ca.Bundle) (*Identity, error) {
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
	opts := x509.VerifyOptions{Roots: i.Roots.Pool(), Intermediates: pool(i.Chain[1:]),
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

// newRequest returns a certificate signing request for key, in PEM. It has no subject: the
// authority decides the name. identity is a SPIFFE ID that it has to have; it may be empty.
func newRequest(key crypto.Signer, identity string) ([]byte, error) {
	request := &x509.CertificateRequest{}
	if identity != "" {
		id, err := spiffe.Parse(identity)
		if err != nil {
			return nil, err
		}
		request.URIs = []*url.URL{id.URL()}
	}
	der, err := x509.CreateCertificateRequest(rand.Reader, request, key)
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
func parseRoots(pems []string) (*ca.Bundle, error) {
	var roots []*x509.Certificate
	for _, text := range pems {
		certs, err := ca.DecodeCertificates([]byte(text))
		if err != nil {
			return nil, err
		}
		roots = append(roots, certs...)
	}
	if len(roots) == 0 {
		return nil, errors.New("there is no root certificate in it")
	}
	for _, c := range roots {
		if !c.IsCA {
			return nil, fmt.Errorf("%s is not the certificate of an authority", serialText(c))
		}
	}
	return ca.NewBundle(roots...), nil
}
