package ca

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"time"

	"github.com/ashore-mesh/ashore/internal/admin"
	"github.com/ashore-mesh/ashore/internal/readfile"
	"github.com/ashore-mesh/ashore/internal/spiffe"
)

// The files of a plugged-in authority. Source: Istio, "Plug in CA Certificates".
const (
	pluggedCert  = "ca-cert.pem"
	pluggedKey   = "ca-key.pem"
	pluggedRoots = "root-cert.pem"
	pluggedChain = "cert-chain.pem" // may be missing if a root signed ca-cert.pem
)

// maxPlugged bounds each file, in bytes: some hundred certificates.
const maxPlugged = 256 << 10

// soon is how long before the end of a plugged-in certificate a problem reports it.
const soon = 30 * 24 * time.Hour

// plugged is an authority of four files that its operator replaces.
type plugged struct {
	config *ManagerConfig // immutable
	signer *Signer
	bundle *Bundle
}

// current implements authority.
func (p *plugged) current() (*Signer, *Bundle) { return p.signer, p.bundle }

// start implements authority. Errors: the files cannot be used.
func (p *plugged) start(_ context.Context, now time.Time) error {
	signer, bundle, err := p.read(now)
	if err == nil {
		p.use(signer, bundle)
	}
	return err
}

// look implements authority. It uses new files once they fit together.
func (p *plugged) look(_ context.Context, now time.Time) error {
	signer, bundle, err := p.read(now)
	if err == nil && !p.bundle.has(signer.root) {
		err = fmt.Errorf("it signs below the root %s, which no workload trusts yet: add that root to %s first, "+
			"and wait until every workload trusts both. A restart of ashored uses it at once, and "+
			"cuts off workloads that do not have the root", signer.root, pluggedRoots)
	}
	if err != nil {
		return fmt.Errorf("the files in the folder are refused; those that were read before stay in use: %w", err)
	}
	p.use(signer, bundle)
	return nil
}

// use signs with what was read from now on. Equal ones keep their pointers.
func (p *plugged) use(signer *Signer, bundle *Bundle) {
	if p.bundle != nil && p.bundle.ID == bundle.ID {
		bundle = p.bundle
	}
	if p.signer.equal(signer) {
		signer = p.signer
	}
	if signer == p.signer && bundle == p.bundle {
		return
	}
	p.signer, p.bundle = signer, bundle
	p.config.Log.Info("plugged-in authority in use", "folder", p.config.Plugged, "certificate", title(signer.Cert),
		"root", signer.root, "roots", len(bundle.Roots), "expires", signer.Cert.NotAfter)
	p.config.loaded(p.config.Plugged, signer.Cert, signer.root)
}

// rotate implements authority.
func (p *plugged) rotate(context.Context, RotateRequest, time.Time) error {
	return fmt.Errorf("%w: the authority is plugged in: put a set into %s whose %s holds the old root and the new "+
		"one, wait until every workload has both, "+
		"then one that signs below the new root, and remove the old root when \"ca show\" names nobody who depends "+
		"on it",
		ErrRotate, p.config.Plugged, pluggedRoots)
}

// show implements authority.
func (p *plugged) show(st *admin.Authority, _ []Dependent, now time.Time) {
	st.Kind, st.Folder = "plugged-in", p.config.Plugged
	st.Problems = append(st.Problems, expiring(slices.Concat(p.signer.Intermediates, p.bundle.Roots),
		p.config.Plugged, now)...)
}

// expiring reports the certificates that operators put into a place and that expire soon, or have
// expired.
func expiring(certs []*x509.Certificate, place string, now time.Time) []string {
	var out []string
	for _, c := range certs {
		if c.NotAfter.Sub(now) < soon {
			out = append(out, fmt.Sprintf("%s in %s expires at %s: replace it before, or remove it after a change of "+
				"root", title(c), place, c.NotAfter.UTC().Format(time.RFC3339)))
		}
	}
	return out
}

// read makes an authority of the files. Errors name the file and the reason, and hold nothing of the
// key.
func (p *plugged) read(now time.Time) (*Signer, *Bundle, error) {
	cert, err1 := p.file(pluggedCert)
	key, err2 := p.file(pluggedKey)
	roots, err3 := p.certificates(pluggedRoots)
	chain, err4 := p.certificates(pluggedChain)
	certs, err5 := DecodeCertificates(cert)
	if err := errors.Join(err1, err2, err3, err4); err != nil {
		return nil, nil, fmt.Errorf("%w (wanted: %s, %s, %s and %s)", err, pluggedCert, pluggedKey, pluggedRoots,
			pluggedChain)
	}
	if err5 == nil && len(certs) > 1 {
		err5 = fmt.Errorf("it holds %d certificates, want one; those between it and the root belong into %s",
			len(certs), pluggedChain)
	}
	if err5 != nil {
		return nil, nil, p.in(pluggedCert, err5)
	}
	by, err := decodePair(cert, key)
	if err != nil {
		return nil, nil, p.in(pluggedKey, err)
	}
	for _, r := range roots {
		if err := checkAuthority(r); err != nil {
			return nil, nil, p.in(pluggedRoots, err)
		}
	}
	bundle := NewBundle(roots...)
	signer, err := NewSigner(by.cert, by.key, chain, bundle, now)
	if err == nil {
		err = signer.trial(bundle, p.config.TrustDomain, now)
	}
	if err != nil {
		return nil, nil, p.in(pluggedCert, fmt.Errorf("%s, with the certificates in %s and the roots in %s: %w",
			title(by.cert), pluggedChain, pluggedRoots, err))
	}
	return signer, bundle, nil
}

// file reads a file. Errors name it.
func (p *plugged) file(name string) ([]byte, error) {
	path := filepath.Join(p.config.Plugged, name)
	text, info, err := readfile.Read(path, maxPlugged)
	if err == nil && name == pluggedKey {
		err = checkKeyMode(path, info.Mode())
	}
	return text, err
}

// certificates reads a file of certificates. The chain may be missing or empty.
func (p *plugged) certificates(name string) ([]*x509.Certificate, error) {
	text, err := p.file(name)
	if name == pluggedChain && (errors.Is(err, fs.ErrNotExist) || err == nil && len(text) == 0) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	certs, err := DecodeCertificates(text)
	if err != nil {
		err = p.in(name, err)
	}
	return certs, err
}

// in names the file that an error is about.
func (p *plugged) in(name string, err error) error {
	return fmt.Errorf("%s: %w", filepath.Join(p.config.Plugged, name), err)
}

// trial signs for a workload of a trust domain and returns why its peers would refuse that:
// constraints of names, usages and path lengths may be anywhere on the path.
func (s *Signer) trial(b *Bundle, trustDomain string, now time.Time) error {
	id, err := spiffe.New(trustDomain, "ashore", "trial")
	if err != nil {
		return err
	}
	leaf, err := Issue(s, Grant{ID: id, Key: NewKey().Public()}, now)
	if err != nil {
		return err
	}
	for _, usage := range []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth} {
		if err := b.verify(append([]*x509.Certificate{leaf}, s.Intermediates...), usage, now); err != nil {
			return fmt.Errorf("a certificate that it signs for %s is refused: %w", id, err)
		}
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
