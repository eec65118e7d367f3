package ca

import (
	"crypto"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path/filepath"
	"slices"
	"time"

	"github.com/ashore-mesh/ashore/internal/readfile"
	"github.com/ashore-mesh/ashore/internal/spiffe"
)

// The files of a plugged-in authority. Source: Istio, "Plug in CA Certificates".
const (
	pluggedCert  = "ca-cert.pem"
	pluggedKey   = "ca-key.pem"
	pluggedRoots = "root-cert.pem"
	pluggedChain = "cert-chain.pem"
)

// maxPlugged bounds each file, in bytes: some hundred certificates.
const maxPlugged = 256 << 10

// soon is how long before the end of a plugged-in certificate it is warned of.
const soon = 30 * 24 * time.Hour

// Plugged is an authority that its operator made.
type Plugged struct {
	Signer *Signer
	// Bundle is all of root-cert.pem.
	Bundle *Bundle
	// Warnings are what does not keep it from being used.
	Warnings []string
}

// readPlugged reads Istio's four files from a folder and checks that they are one authority that
// can sign at the time now. cert-chain.pem may be missing when ca-cert.pem is signed by a root of
// root-cert.pem.
//
// A key that every user of the machine can read, or that others than its owner can write, is
// refused: it may be known, or swapped. Its group may read it: that is how a service is given a key
// that it does not own. Errors name the file and the reason, and never hold anything of the key.
func readPlugged(dir string, now time.Time) (*Plugged, error) {
	files, err := readPluggedFiles(dir)
	if err != nil {
		return nil, err
	}
	return files.parse(now)
}

// pluggedFiles are the texts of the four files.
type pluggedFiles struct {
	dir                     string
	cert, key, roots, chain []byte
	keyMode                 fs.FileMode
}

// readPluggedFiles reads the four files, as far as they are there.
func readPluggedFiles(dir string) (*pluggedFiles, error) {
	p := &pluggedFiles{dir: dir}
	var errs []error
	for _, f := range []struct {
		name     string
		into     *[]byte
		optional bool
	}{{pluggedCert, &p.cert, false}, {pluggedKey, &p.key, false}, {pluggedRoots, &p.roots, false}, {pluggedChain,
		&p.chain, true}} {
		data, info, err := readfile.Read(filepath.Join(dir, f.name), maxPlugged)
		switch {
		case f.optional && errors.Is(err, fs.ErrNotExist):
		case err != nil:
			errs = append(errs, err)
		case f.name == pluggedKey:
			p.keyMode = info.Mode()
			fallthrough
		default:
			*f.into = data
		}
	}
	if len(errs) > 0 {
		return nil, fmt.Errorf("%w (wanted: %s, %s, %s and %s)", errors.Join(errs...), pluggedCert, pluggedKey,
			pluggedRoots, pluggedChain)
	}
	return p, nil
}

// sum tells one content of the files from another.
func (p *pluggedFiles) sum() [sha256.Size]byte {
	h := sha256.New()
	for _, text := range [][]byte{p.cert, p.key, p.roots, p.chain} {
		part := sha256.Sum256(text)
		h.Write(part[:])
	}
	fmt.Fprint(h, p.keyMode)
	return [sha256.Size]byte(h.Sum(nil))
}

// at is the path of a file, for errors.
func (p *pluggedFiles) at(name string) string { return filepath.Join(p.dir, name) }

// parse makes an authority of the texts.
func (p *pluggedFiles) parse(now time.Time) (*Plugged, error) {
	if err := checkKeyMode(p.at(pluggedKey), p.keyMode); err != nil {
		return nil, err
	}
	key, err := DecodeKey(p.key)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", p.at(pluggedKey), err)
	}
	cert, err := p.authority(key, now)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", p.at(pluggedCert), err)
	}
	roots, warnings, err := p.trusted(now)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", p.at(pluggedRoots), err)
	}
	chain, err := p.between(now)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", p.at(pluggedChain), err)
	}
	path, err := p.path(cert, chain, roots, now)
	if err != nil {
		return nil, err
	}
	root := path[len(path)-1]
	signer, err := NewSigner(cert, key, path[1:], root, now)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", p.at(pluggedCert), err)
	}
	return &Plugged{Signer: signer, Bundle: NewBundle(roots...), Warnings: warnings}, nil
}

// ending are the warnings of certificates on the path from what signs to the root that end soon.
func (p *Plugged) ending(now time.Time) []string {
	var out []string
	path := append(slices.Clone(p.Signer.Intermediates), p.Signer.Root)
	for _, c := range path {
		if c.NotAfter.Sub(now) < soon {
			out = append(out, fmt.Sprintf("%s ends at %s: put a new set there before", title(c),
				c.NotAfter.UTC().Format(time.RFC3339)))
		}
	}
	return out
}

// authority is the certificate that signs.
func (p *pluggedFiles) authority(key crypto.Signer, now time.Time) (*x509.Certificate, error) {
	certs, err := DecodeCertificates(p.cert)
	if err != nil {
		return nil, err
	}
	cert := certs[0]
	switch {
	case len(certs) > 1:
		return nil, fmt.Errorf("it holds %d certificates, want one; those between it and the root belong into %s",
			len(certs), pluggedChain)
	case !sameKey(cert.PublicKey, key.Public()):
		return nil, fmt.Errorf("the key in %s is not that of this certificate", pluggedKey)
	}
	if err := checkAuthority(cert, now); err != nil {
		return nil, err
	}
	return cert, nil
}

// trusted are the roots. One that has ended stays, with a warning: it may be the one that is being
// replaced.
func (p *pluggedFiles) trusted(now time.Time) (roots []*x509.Certificate, warnings []string, err error) {
	roots, err = DecodeCertificates(p.roots)
	if err != nil {
		return nil, nil, err
	}
	for i, r := range roots {
		err := checkAuthority(r, now)
		switch {
		case err == nil:
		case !now.Before(r.NotAfter) && checkAuthority(r, r.NotAfter.Add(-time.Second)) == nil:
			warnings = append(warnings, fmt.Sprintf("%s: %v: take it out", p.at(pluggedRoots), err))
		default:
			return nil, nil, fmt.Errorf("certificate %d: %w", i+1, err)
		}
	}
	return roots, warnings, nil
}

// between are the certificates of the chain file. It may hold the authority and the root too.
func (p *pluggedFiles) between(now time.Time) ([]*x509.Certificate, error) {
	if len(p.chain) == 0 {
		return nil, nil
	}
	chain, err := DecodeCertificates(p.chain)
	if err != nil {
		return nil, err
	}
	for i, c := range chain {
		if err := checkAuthority(c, now); err != nil {
			return nil, fmt.Errorf("certificate %d: %w", i+1, err)
		}
	}
	return chain, nil
}

// path is how the authority's certificate leads to a root, both included: the shortest one.
func (p *pluggedFiles) path(cert *x509.Certificate, chain, roots []*x509.Certificate,
	now time.Time) ([]*x509.Certificate, error) {
	between, trusted := x509.NewCertPool(), x509.NewCertPool()
	for _, c := range chain {
		between.AddCert(c)
	}
	for _, r := range roots {
		trusted.AddCert(r)
	}
	paths, err := cert.Verify(x509.VerifyOptions{Roots: trusted, Intermediates: between, CurrentTime: now,
		KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageAny}})
	if err != nil {
		return nil, fmt.Errorf("%s: %s does not lead to any root of %s by the certificates in %s: %w",
			p.at(pluggedCert), title(cert), pluggedRoots, pluggedChain, err)
	}
	shortest := paths[0]
	for _, path := range paths {
		if len(path) < len(shortest) {
			shortest = path
		}
	}
	// Verify does not count the authority itself: to it, that is the leaf.
	for below, c := range shortest {
		if (c.MaxPathLen > 0 || c.MaxPathLenZero) && below > c.MaxPathLen {
			return nil, fmt.Errorf("%s: %s allows %d authorities below it (path length), and there are %d: every peer would refuse what is signed",
				p.at(pluggedCert), title(c), c.MaxPathLen, below)
		}
	}
	return shortest, nil
}

// trial signs for a workload of a trust domain and says why its peers would refuse that:
// constraints of names and of usages stand anywhere on the path.
func (p *Plugged) trial(trustDomain string, now time.Time, random io.Reader) error {
	id, err := spiffe.New(trustDomain, "ashore", "trial")
	if err != nil {
		return err
	}
	key, err := NewKey(ECDSAP256, random)
	if err != nil {
		return fmt.Errorf("%w: %w", ErrSigner, err)
	}
	leaf, err := Issue(p.Signer, Rules{}, Grant{ID: id, Request: &Request{Key: key.Public()}}, now, random)
	if err != nil {
		return err
	}
	between := x509.NewCertPool()
	for _, c := range p.Signer.Intermediates {
		between.AddCert(c)
	}
	for _, usage := range []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth} {
		opts := x509.VerifyOptions{Roots: p.Bundle.Pool(), Intermediates: between, CurrentTime: now,
			KeyUsages: []x509.ExtKeyUsage{usage}}
		if _, err := leaf.Verify(opts); err != nil {
			return fmt.Errorf("a certificate that %s signs for %s is refused: %w", title(p.Signer.Cert), id, err)
		}
	}
	return nil
}

// checkAuthority says what keeps a certificate from being that of an authority, whatever its key.
func checkAuthority(c *x509.Certificate, now time.Time) error {
	k, isRSA := c.PublicKey.(*rsa.PublicKey)
	switch {
	case !c.IsCA || !c.BasicConstraintsValid:
		return fmt.Errorf("%s is not the certificate of a CA (basic constraints)", title(c))
	case c.KeyUsage != 0 && c.KeyUsage&x509.KeyUsageCertSign == 0:
		return fmt.Errorf("%s may not sign certificates (key usage)", title(c))
	case isRSA && k.N.BitLen() < minRSA:
		return fmt.Errorf("%s has an RSA key of %d bits, want at least %d", title(c), k.N.BitLen(), minRSA)
	case now.Before(c.NotBefore):
		return fmt.Errorf("%s begins at %s, and this machine's clock says %s", title(c),
			c.NotBefore.UTC().Format(time.RFC3339), now.UTC().Format(time.RFC3339))
	case !now.Before(c.NotAfter):
		return fmt.Errorf("%s ended at %s, and this machine's clock says %s", title(c),
			c.NotAfter.UTC().Format(time.RFC3339), now.UTC().Format(time.RFC3339))
	}
	return nil
}

// checkKeyMode says who else may read or write a key.
func checkKeyMode(path string, mode fs.FileMode) error {
	switch {
	case mode&0o004 != 0:
		return fmt.Errorf("%s: every user of this machine can read the key (mode %04o): chmod 600 it, and make a new one if others may have read it", path, mode.Perm())
	case mode&0o022 != 0:
		return fmt.Errorf("%s: others than its owner can change the key (mode %04o): chmod 600 it", path, mode.Perm())
	}
	return nil
}

// title names a certificate to an operator.
func title(c *x509.Certificate) string {
	name := c.Subject.CommonName
	if name == "" {
		name = c.Subject.String()
	}
	return fmt.Sprintf("%.100q (serial %.40s)", name, serialText(c))
}
