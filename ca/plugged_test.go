package ca

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"crypto/x509/pkix"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// set is a plugged-in authority before it is written: what operators make with openssl.
type set struct {
	root, above, cert *Signer // above stands between the root and the authority
	files             map[string][]byte
}

// made is a CA certificate by a template, under parent or of its own.
func made(t testing.TB, parent *Signer, key crypto.Signer, change func(*x509.Certificate)) *Signer {
	t.Helper()
	c := &x509.Certificate{
		Subject:   pkix.Name{CommonName: "ca " + rand.Text()[:4]},
		NotBefore: noon.Add(-time.Hour), NotAfter: noon.Add(1000 * time.Hour),
		KeyUsage: x509.KeyUsageCertSign, BasicConstraintsValid: true, IsCA: true, MaxPathLen: -1,
	}
	if change != nil {
		change(c)
	}
	above, by := c, key
	if parent != nil {
		above, by = parent.Cert, parent.Key
	}
	der, err := x509.CreateCertificate(rand.Reader, c, above, key.Public(), by)
	if err != nil {
		t.Fatal(err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return &Signer{Cert: cert, Key: key}
}

// newSet is a good one: a root, an authority below it, and one more below that, which signs.
func newSet(t testing.TB) *set {
	t.Helper()
	s := &set{}
	s.root = made(t, nil, NewKey(), func(c *x509.Certificate) { c.Subject.CommonName = "the root" })
	s.above = made(t, s.root, NewKey(), func(c *x509.Certificate) { c.Subject.CommonName = "between" })
	s.cert = made(t, s.above, NewKey(),
		func(c *x509.Certificate) { c.Subject.CommonName = "mesh"; c.MaxPathLen, c.MaxPathLenZero = 0, true })
	s.pack(t)
	return s
}

// pack makes the files of what the set holds now.
func (s *set) pack(t testing.TB) {
	t.Helper()
	key, err := EncodeKey(s.cert.Key)
	if err != nil {
		t.Fatal(err)
	}
	s.files = map[string][]byte{
		pluggedCert: EncodeCertificates(s.cert.Cert), pluggedKey: key,
		pluggedRoots: EncodeCertificates(s.root.Cert), pluggedChain: EncodeCertificates(s.cert.Cert, s.above.Cert),
	}
}

// write puts the files into a folder, each by rename.
func (s *set) write(t testing.TB, dir string) string {
	t.Helper()
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	for name, text := range s.files {
		replaceFile(t, filepath.Join(dir, name), text)
	}
	return dir
}

func replaceFile(t testing.TB, path string, text []byte) {
	t.Helper()
	if err := os.WriteFile(path+".new", text, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(path+".new", path); err != nil {
		t.Fatal(err)
	}
}

// A good set signs, and everybody who has its roots believes that.
func TestReadPlugged(t *testing.T) {
	t.Parallel()
	other := testRoot(t).Cert
	for name, tc := range map[string]struct {
		change        func(*set)
		intermediates int
		roots         int
		warning       string
	}{
		"as Istio's":           {func(*set) {}, 2, 1, ""},
		"chain without itself": {func(s *set) { s.files[pluggedChain] = EncodeCertificates(s.above.Cert) }, 2, 1, ""},
		"chain with the root":  {func(s *set) { s.files[pluggedChain] = EncodeCertificates(s.cert.Cert, s.above.Cert, s.root.Cert) }, 2, 1, ""},
		"several roots":        {func(s *set) { s.files[pluggedRoots] = EncodeCertificates(other, s.root.Cert) }, 2, 2, ""},
		"a root twice":         {func(s *set) { s.files[pluggedRoots] = EncodeCertificates(s.root.Cert, s.root.Cert) }, 2, 1, ""},
		"a root that ended": {func(s *set) {
			old := made(t, nil, NewKey(),
				func(c *x509.Certificate) { c.Subject.CommonName = "old"; c.NotAfter = noon.Add(-time.Minute) })
			s.files[pluggedRoots] = EncodeCertificates(old.Cert, s.root.Cert)
		}, 2, 2, "\"old\""},
		"the root signs": {func(s *set) { s.cert, s.above = s.root, s.root; s.pack(t); delete(s.files, pluggedChain) }, 0, 1, ""},
		"empty chain":    {func(s *set) { s.cert, s.above = s.root, s.root; s.pack(t); s.files[pluggedChain] = nil }, 0, 1, ""},
		"RSA":            {func(s *set) { s.cert = made(t, s.above, rsaKey(t), nil); s.pack(t) }, 2, 1, ""},
		"ends soon": {func(s *set) {
			s.cert = made(t, s.above, NewKey(),
				func(c *x509.Certificate) { c.Subject.CommonName = "mesh"; c.NotAfter = noon.Add(time.Hour) })
			s.pack(t)
		}, 2, 1, `"mesh"`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newSet(t)
			tc.change(s)
			signer, bundle, err := loadSet(t, s)
			if err != nil {
				t.Fatal(err)
			}
			if len(signer.Intermediates) != tc.intermediates || len(bundle.Roots) != tc.roots ||
				!signer.Root.Equal(s.root.Cert) {
				t.Errorf("%d intermediates, %d roots, root %s", len(signer.Intermediates), len(bundle.Roots),
					signer.Root.Subject)
			}
			p := plugged{config: &ManagerConfig{}, signer: signer, bundle: bundle}
			if got := strings.Join(expiring(slices.Concat(p.signer.Intermediates, p.bundle.Roots), p.config.Plugged, noon), "\n"); (tc.warning == "") != (got == "") ||
				!strings.Contains(got, tc.warning) {
				t.Errorf("warnings %q, want %q", got, tc.warning)
			}
		})
	}
}

// loadSet writes a set and reads it again.
func loadSet(t testing.TB, s *set) (*Signer, *Bundle, error) {
	t.Helper()
	dir := s.write(t, t.TempDir())
	signer, bundle, err := (&plugged{config: &ManagerConfig{Plugged: dir, TrustDomain: "cluster.local"}}).read(noon)
	return signer, bundle, err
}

// A set that cannot serve is refused, with the file and the reason.
func TestReadPluggedRefuses(t *testing.T) {
	t.Parallel()
	ec := func() crypto.Signer { return NewKey() }
	weak, err := rsa.GenerateKey(rand.Reader, 1024)
	if err != nil {
		t.Fatal(err)
	}
	curve, err := ecdsa.GenerateKey(elliptic.P521(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	remake := func(key crypto.Signer, change func(*x509.Certificate)) func(*set) {
		return func(s *set) { s.cert = made(t, s.above, key, change); s.pack(t) }
	}
	for name, tc := range map[string]struct {
		change func(*set)
		want   string
	}{
		"no certificate":   {func(s *set) { delete(s.files, pluggedCert) }, "ca-cert.pem: no such file or directory"},
		"no key":           {func(s *set) { delete(s.files, pluggedKey) }, "ca-key.pem: no such file or directory"},
		"no roots":         {func(s *set) { delete(s.files, pluggedRoots) }, "root-cert.pem: no such file or directory"},
		"large":            {func(s *set) { s.files[pluggedRoots] = make([]byte, maxPlugged+1) }, "root-cert.pem has more than 262144 bytes"},
		"no PEM":           {func(s *set) { s.files[pluggedCert] = []byte("x") }, "ca-cert.pem: it holds no PEM block of a certificate"},
		"key for cert":     {func(s *set) { s.files[pluggedCert] = s.files[pluggedKey] }, `ca-cert.pem: PEM block 1 is a "PRIVATE KEY"`},
		"cert for key":     {func(s *set) { s.files[pluggedKey] = s.files[pluggedCert] }, "ca-key.pem: tls: found a certificate rather than a key"},
		"two certificates": {func(s *set) { s.files[pluggedCert] = EncodeCertificates(s.cert.Cert, s.above.Cert) }, "ca-cert.pem: it holds 2 certificates, want one; those between it and the root belong into cert-chain.pem"},
		"another's key": {func(s *set) {
			k, err := EncodeKey(ec())
			if err != nil {
				t.Error(err)
			}
			s.files[pluggedKey] = k
		}, "ca-key.pem: tls: private key does not match public key"},
		"ended":         {remake(ec(), func(c *x509.Certificate) { c.NotAfter = noon }), "the certificate of the authority expired at 2026-11-21T12:00:00Z"},
		"begins":        {remake(ec(), func(c *x509.Certificate) { c.NotBefore = noon.Add(time.Hour) }), "current time 2026-11-21T12:00:00Z is before 2026-11-21T13:00:00Z"},
		"a leaf":        {remake(ec(), func(c *x509.Certificate) { c.IsCA, c.KeyUsage = false, x509.KeyUsageDigitalSignature }), "is not the certificate of a CA (basic constraints)"},
		"may not sign":  {remake(ec(), func(c *x509.Certificate) { c.KeyUsage = x509.KeyUsageCRLSign }), "may not sign certificates (key usage)"},
		"weak key":      {remake(weak, nil), "ca-key.pem: its RSA key has 1024 bits, want 2048 to 4096"},
		"unknown curve": {remake(curve, nil), "ca-key.pem: its key is on a curve that is not allowed"},
		"no chain":      {func(s *set) { delete(s.files, pluggedChain) }, "with the certificates in cert-chain.pem and the roots in root-cert.pem: the authority's certificate is not valid below any root"},
		"a stranger's root": {func(s *set) { s.files[pluggedRoots] = EncodeCertificates(testRoot(t).Cert) },
			`ca-cert.pem: "mesh" (serial `},
		"the root ended": {func(s *set) {
			s.root = made(t, nil, s.root.Key,
				func(c *x509.Certificate) { c.Subject = s.root.Cert.Subject; c.NotAfter = noon.Add(-time.Minute) })
			s.pack(t)
		}, "is not valid below any root"},
		"a root is no CA": {func(s *set) {
			s.files[pluggedRoots] = EncodeCertificates(s.root.Cert,
				made(t, nil, ec(), func(c *x509.Certificate) { c.IsCA, c.KeyUsage = false, 0 }).Cert)
		}, "is not the certificate of a CA"},
		"the chain ended": {func(s *set) {
			s.files[pluggedChain] = EncodeCertificates(made(t, s.root, s.above.Key,
				func(c *x509.Certificate) { c.NotAfter = noon }).Cert)
		}, "is not valid below any root"},
		"path length": {func(s *set) {
			s.above = made(t, s.root, s.above.Key,
				func(c *x509.Certificate) { c.Subject.CommonName = "short"; c.MaxPathLen, c.MaxPathLenZero = 0, true })
			s.cert = made(t, s.above, s.cert.Key, nil)
			s.pack(t)
		}, "too many intermediates for path length constraint"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newSet(t)
			tc.change(s)
			if _, _, err := loadSet(t, s); err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("got  %v\nwant %s", err, tc.want)
			}
		})
	}
}

// A key that others can read or change is refused; one that its group can read is not.
func TestKeyMode(t *testing.T) {
	t.Parallel()
	for mode, want := range map[os.FileMode]string{0o600: "", 0o400: "", 0o640: "", 0o440: "",
		0o644: "every user of this machine can read the key (mode 0644): chmod 600", 0o604: "every user", 0o660: "others than its owner can change the key (mode 0660)", 0o602: "can change the key"} {
		dir := newSet(t).write(t, t.TempDir())
		if err := os.Chmod(filepath.Join(dir, pluggedKey), mode); err != nil {
			t.Fatal(err)
		}
		_, _, err := (&plugged{config: &ManagerConfig{Plugged: dir, TrustDomain: "cluster.local"}}).read(noon)
		if (want == "") != (err == nil) || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%04o: got %v, want %q", mode, err, want)
		}
	}
}

// An authority whose constraints refuse what it would sign is found out before it signs.
func TestTrial(t *testing.T) {
	t.Parallel()
	for want, change := range map[string]func(*x509.Certificate){
		"is not permitted by any constraint": func(c *x509.Certificate) {
			c.PermittedURIDomains, c.PermittedDNSDomainsCritical = []string{"other.example"}, true
		},
		"incompatible key usage": func(c *x509.Certificate) { c.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth} },
	} {
		s := newSet(t)
		s.cert = made(t, s.above, s.cert.Key, change)
		s.pack(t)
		if _, _, err := loadSet(t, s); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %q", err, want)
		}
	}
}
