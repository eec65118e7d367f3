package ca

import (
	"bytes"
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/ashore-mesh/ashore/internal/audit"
	"github.com/ashore-mesh/ashore/internal/readfile"
	"github.com/ashore-mesh/ashore/internal/record"
	"github.com/ashore-mesh/ashore/internal/spiffe"
)

// The files of a plugged-in authority. Source: Istio, "Plug in CA Certificates".
const (
	pluggedCert  = "ca-cert.pem"
	pluggedKey   = "ca-key.pem"
	pluggedRoots = "root-cert.pem"
	pluggedChain = "cert-chain.pem" // may be missing when a root signed ca-cert.pem
)

// maxPlugged bounds each file, in bytes: some hundred certificates.
const maxPlugged = 256 << 10

// soon is how long before the end of a plugged-in certificate a problem reports it.
const soon = 30 * 24 * time.Hour

// plugged is an authority of four files that its operator replaces.
type plugged struct {
	dir         string
	records     record.Store
	trustDomain string
	log         hclog.Logger
	audit       func(audit.Event)

	signer *Signer
	bundle *Bundle
	used   pluggedFiles // the content in use
	seen   pluggedFiles // the content at the last look
	// refused is why the content at the last look is not used, as far as it was audited.
	refused string
}

// pluggedFiles are the contents of the files by name.
type pluggedFiles map[string][]byte

func (f pluggedFiles) equal(other pluggedFiles) bool { return maps.EqualFunc(f, other, bytes.Equal) }

// current implements authority.
func (p *plugged) current() (*Signer, *Bundle) { return p.signer, p.bundle }

// start reads the files, and records that the mesh trusts a plugged-in root. Errors: the files
// cannot be used.
func (p *plugged) start(ctx context.Context, now time.Time) error {
	files, err := readPlugged(p.dir)
	if err != nil {
		return err
	}
	signer, bundle, err := files.parse(p.dir, p.trustDomain, now)
	if err != nil {
		return err
	}
	err = p.records.Commit(ctx, record.Write{Key: pluggedRecord(), Value: []byte(`{"v":1}`), Version: record.Any})
	if err != nil {
		return fmt.Errorf("record that the authority is plugged in: %w", err)
	}
	p.use(files, signer, bundle, now)
	return nil
}

// pluggedRecord exists once a plugged-in authority was used: ashored then makes no root of its own.
func pluggedRecord() record.Key { return record.Key{Table: table, Name: "plugged"} }

// look implements authority. It takes files that replaced those in use, once they fit together.
// Files that do not fit may be in the middle of a replacement: they are reported when the next look
// finds them unchanged.
func (p *plugged) look(_ context.Context, now time.Time) error {
	files, err := readPlugged(p.dir)
	settled := files.equal(p.seen)
	p.seen = files
	if err == nil && files.equal(p.used) {
		p.refused = ""
		return nil
	}
	var signer *Signer
	var bundle *Bundle
	if err == nil {
		signer, bundle, err = files.parse(p.dir, p.trustDomain, now)
	}
	if err == nil && !p.bundle.has(signer.root) {
		err = fmt.Errorf("it signs below the root %s, which no workload trusts yet: add that root to %s first, "+
			"and wait until every workload trusts both. A restart of ashored uses it at once, and "+
			"cuts off workloads that do not have the root",
			signer.root, pluggedRoots)
	}
	switch {
	case err == nil:
		p.use(files, signer, bundle, now)
		p.refused = ""
		return nil
	case !settled:
		return nil
	case p.refused != err.Error():
		p.refused = err.Error()
		p.audit(audit.Event{Action: audit.CALoad, Actor: "ashored", Target: p.dir, Outcome: audit.Refused,
			Reason: p.refused})
	}
	return fmt.Errorf("the files in the folder are refused; those that were read before stay in use: %w", err)
}

// use signs with a set from now on.
func (p *plugged) use(files pluggedFiles, signer *Signer, bundle *Bundle, now time.Time) {
	if p.bundle == nil || p.bundle.ID != bundle.ID { // equal ones keep their pointer
		p.bundle = bundle
	}
	p.signer, p.used = signer, files
	roots := strconv.Itoa(len(bundle.Roots))
	p.log.Info("plugged-in authority in use", "folder", p.dir, "certificate", title(signer.Cert), "root", signer.root,
		"roots", roots, "ends", signer.Cert.NotAfter)
	for _, w := range p.ending(now) {
		p.log.Warn("plugged-in authority", "warning", w)
	}
	p.audit(audit.Event{Action: audit.CALoad, Actor: "ashored", Target: p.dir, Details: map[string]string{
		"root": signer.root, "roots": roots, "serial": serialText(signer.Cert),
		"notAfter": signer.Cert.NotAfter.UTC().Format(time.RFC3339),
	}})
}

// rotate implements authority.
func (p *plugged) rotate(context.Context, RotateRequest, time.Time) error {
	return fmt.Errorf("%w: the authority is plugged in: put a set into %s whose %s holds the old root and the new "+
		"one, wait until every workload has both, "+
		"then one that signs below the new root, and take the old root out when \"ca show\" tells of nobody who "+
		"depends on it", ErrRotate, p.dir, pluggedRoots)
}

// show implements authority.
func (p *plugged) show(st *Status, _ Facts, now time.Time) {
	st.Source, st.Folder = "plugged-in", p.dir
	st.Problems = append(st.Problems, p.ending(now)...)
}

// ending reports the certificates in use that end soon, or have ended.
func (p *plugged) ending(now time.Time) []string {
	var out []string
	for _, c := range slices.Concat(p.signer.Intermediates, p.bundle.Roots) {
		if c.NotAfter.Sub(now) < soon {
			out = append(out, fmt.Sprintf("%s in %s ends at %s: replace it before, or remove it after a change of the root",
				title(c), p.dir, c.NotAfter.UTC().Format(time.RFC3339)))
		}
	}
	return out
}

// readPlugged reads Istio's four files from a folder.
//
// A key that every user of the machine can read, or that others than its owner can write, is
// refused: it may be known, or swapped. Its group may read it: that is how a service is given a key
// that it does not own. Errors name the file and the reason, and never hold anything of the key.
func readPlugged(dir string) (pluggedFiles, error) {
	files := pluggedFiles{}
	for _, name := range []string{pluggedCert, pluggedKey, pluggedRoots, pluggedChain} {
		path := filepath.Join(dir, name)
		text, info, err := readfile.Read(path, maxPlugged)
		if name == pluggedChain && errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err == nil && name == pluggedKey {
			err = checkKeyMode(path, info.Mode())
		}
		if err != nil {
			return nil, fmt.Errorf("%w (wanted: %s, %s, %s and %s)", err, pluggedCert, pluggedKey, pluggedRoots, pluggedChain)
		}
		files[name] = text
	}
	return files, nil
}

// parse makes an authority of the files of a folder. It is checked by what it is for: a certificate
// that it signs for a workload of the trust domain has to be one that peers accept.
func (f pluggedFiles) parse(dir, trustDomain string, now time.Time) (*Signer, *Bundle, error) {
	at := func(name string, err error) error { return fmt.Errorf("%s: %w", filepath.Join(dir, name), err) }
	key, err := DecodeKey(f[pluggedKey])
	if err != nil {
		return nil, nil, at(pluggedKey, err)
	}
	certs, err := DecodeCertificates(f[pluggedCert])
	switch {
	case err != nil:
		return nil, nil, at(pluggedCert, err)
	case len(certs) > 1:
		return nil, nil, at(pluggedCert, fmt.Errorf("it holds %d certificates, want one; those between it and the "+
			"root belong into %s",
			len(certs), pluggedChain))
	case !sameKey(certs[0].PublicKey, key.Public()):
		return nil, nil, at(pluggedCert, fmt.Errorf("the key in %s is not that of this certificate", pluggedKey))
	}
	roots, err := DecodeCertificates(f[pluggedRoots])
	if err != nil {
		return nil, nil, at(pluggedRoots, err)
	}
	for _, r := range roots {
		if err := checkAuthority(r); err != nil {
			return nil, nil, at(pluggedRoots, err)
		}
	}
	var chain []*x509.Certificate
	if len(f[pluggedChain]) > 0 {
		if chain, err = DecodeCertificates(f[pluggedChain]); err != nil {
			return nil, nil, at(pluggedChain, err)
		}
	}
	bundle := NewBundle(roots...)
	path, err := shortestPath(certs[0], chain, bundle, now)
	if err != nil {
		return nil, nil, at(pluggedCert, err)
	}
	signer, err := NewSigner(path[0], key, path[1:], path[len(path)-1], now)
	if err == nil {
		err = signer.trial(bundle, trustDomain, now)
	}
	if err != nil {
		return nil, nil, at(pluggedCert, fmt.Errorf("%s: %w", title(certs[0]), err))
	}
	return signer, bundle, nil
}

// shortestPath is how a certificate leads to a root of the bundle, both included.
func shortestPath(cert *x509.Certificate, chain []*x509.Certificate, b *Bundle,
	now time.Time) ([]*x509.Certificate, error) {
	paths, err := cert.Verify(x509.VerifyOptions{Roots: b.Pool(), Intermediates: pool(chain), CurrentTime: now,
		KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageAny}})
	if err != nil {
		return nil, fmt.Errorf("%s does not lead to any root of %s by the certificates in %s: %w", title(cert),
			pluggedRoots, pluggedChain, err)
	}
	return slices.MinFunc(paths, func(a, b []*x509.Certificate) int { return len(a) - len(b) }), nil
}

// trial signs for a workload of a trust domain and says why its peers would refuse that:
// constraints of names, usages and path lengths stand anywhere on the path.
func (s *Signer) trial(b *Bundle, trustDomain string, now time.Time) error {
	id, err := spiffe.New(trustDomain, "ashore", "trial")
	if err != nil {
		return err
	}
	leaf, err := Issue(s, Rules{}, Grant{ID: id, Request: &Request{Key: NewKey().Public()}}, now)
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

// checkKeyMode says who else may read or write a key.
func checkKeyMode(path string, mode fs.FileMode) error {
	switch {
	case mode&0o004 != 0:
		return fmt.Errorf("%s: every user of this machine can read the key (mode %04o): chmod 600 it, and make a new "+
			"one if others may have read it", path, mode.Perm())
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

// untrusted are problems with workloads whose latest certificate leads to a root that is not
// trusted any more.
func (f Facts) untrusted(trusted []string, now time.Time) []string {
	var names []string
	for _, l := range f.Leaves {
		if l.NotAfter.Add(f.Grace).After(now) && !slices.Contains(trusted, l.RootID) {
			names = append(names, l.Workload)
		}
	}
	if len(names) == 0 {
		return nil
	}
	const few = 5
	some := strings.Join(names[:min(few, len(names))], ", ")
	if len(names) > few {
		some += ", …"
	}
	return []string{fmt.Sprintf("%d workloads have certificates below a root that is not trusted any more (%s). "+
		"They renew as soon as they connect; one that does not trust the root that signs has to join again, or needs "+
		"a plugged-in authority below the root that it trusts, with both roots in %s",
		len(names), some, pluggedRoots)}
}
