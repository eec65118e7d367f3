package ca

import (
	"crypto/sha256"
	"crypto/x509"
	"encoding/hex"
	"slices"
	"strings"
	"time"
)

// Bundle is the root certificates that the mesh trusts. Immutable: an equal bundle keeps its pointer.
type Bundle struct {
	// ID is the same for the same roots in any order.
	ID string
	// Roots are in the order of their ids, each once.
	Roots []*x509.Certificate

	text string         // Roots as PEM
	ids  []string       // of Roots
	pool *x509.CertPool // Roots
}

// RootID names a root by its content: "sha256:" and the hexadecimal SHA-256 of its DER. Join commands
// have it.
func RootID(c *x509.Certificate) string {
	return "sha256:" + hexSum(c.Raw)
}

// hexSum is the SHA-256 of data in hexadecimal digits.
func hexSum(data []byte) string {
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:])
}

// NewBundle makes a bundle of roots.
func NewBundle(roots ...*x509.Certificate) *Bundle {
	sorted := slices.Clone(roots)
	slices.SortFunc(sorted, func(a, b *x509.Certificate) int { return strings.Compare(RootID(a), RootID(b)) })
	sorted = slices.CompactFunc(sorted, (*x509.Certificate).Equal)
	ids := make([]string, len(sorted))
	for i, r := range sorted {
		ids[i] = RootID(r)
	}
	return &Bundle{ID: bundleID(ids), Roots: sorted, text: string(EncodeCertificates(sorted...)), ids: ids,
		pool: pool(sorted)}
}

// bundleID is the ID of a bundle of the roots with these ids.
func bundleID(ids []string) string {
	sorted := slices.Compact(slices.Sorted(slices.Values(ids)))
	return hexSum([]byte(strings.Join(sorted, "\n")))
}

// PEM is the bundle as text.
func (b *Bundle) PEM() []byte { return []byte(b.text) }

// Pool is the bundle for verifiers. Do not change it.
func (b *Bundle) Pool() *x509.CertPool { return b.pool }

// verify returns why a chain, leaf first, does not lead to a root of the bundle for a use.
func (b *Bundle) verify(chain []*x509.Certificate, usage x509.ExtKeyUsage, now time.Time) error {
	_, err := chain[0].Verify(x509.VerifyOptions{Roots: b.pool, Intermediates: pool(chain[1:]), CurrentTime: now,
		KeyUsages: []x509.ExtKeyUsage{usage}})
	return err
}

func pool(certs []*x509.Certificate) *x509.CertPool {
	p := x509.NewCertPool()
	for _, c := range certs {
		p.AddCert(c)
	}
	return p
}

// has reports whether the root with an ID is in the bundle.
func (b *Bundle) has(id string) bool { return slices.Contains(b.ids, id) }
