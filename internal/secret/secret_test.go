package secret

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// newKey makes an ECDSA key.
func newKey(t testing.TB, curve elliptic.Curve) *ecdsa.PrivateKey {
	t.Helper()
	key, err := ecdsa.GenerateKey(curve, rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

func encode(typ string, der []byte) string {
	return string(pem.EncodeToMemory(&pem.Block{Type: typ, Bytes: der}))
}

// issue makes a certificate for host that signs itself.
func issue(t testing.TB, key crypto.Signer, host string, expires time.Time) *x509.Certificate {
	t.Helper()
	template := &x509.Certificate{SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: pkix.Name{CommonName: host},
		DNSNames: []string{host}, NotBefore: expires.Add(-time.Hour), NotAfter: expires, IsCA: true,
		BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageCRLSign}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	c, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// pair is a secret with a new certificate for host.
func pair(t testing.TB, key crypto.Signer, host string, expires time.Time) Secret {
	t.Helper()
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	return Secret{Certificate: encode("CERTIFICATE", issue(t, key, host, expires).Raw), Key: encode("PRIVATE KEY", der)}
}

// valid is a secret with all parts.
func valid(t testing.TB, host string) Secret {
	t.Helper()
	key := newKey(t, elliptic.P256())
	s := pair(t, key, host, time.Now().Add(time.Minute))
	s.Authorities = s.Certificate
	s.Revoked = revoked(t, key, time.Now().Add(time.Minute))
	return s
}

// revoked is a list of revoked certificates, without any.
func revoked(t testing.TB, key crypto.Signer, until time.Time) string {
	t.Helper()
	der, err := x509.CreateRevocationList(rand.Reader, &x509.RevocationList{Number: big.NewInt(1),
		ThisUpdate: until.Add(-time.Hour), NextUpdate: until}, issue(t, key, "ca", time.Now().Add(time.Minute)), key)
	if err != nil {
		t.Fatal(err)
	}
	return encode("X509 CRL", der)
}

// What proxies cannot use is refused, with the part and the reason, and never with the key.
func TestCheck(t *testing.T) {
	t.Parallel()
	now := time.Now()
	good, other := valid(t, "web.test"), valid(t, "other.test")
	short, err := rsa.GenerateKey(rand.Reader, 1024)
	if err != nil {
		t.Fatal(err)
	}
	_, ed, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	with := func(change func(*Secret)) Secret { s := good; change(&s); return s }
	expired := pair(t, newKey(t, elliptic.P256()), "old.test", now.Add(-time.Minute))
	for name, tc := range map[string]struct {
		secret Secret
		want   string
	}{
		"everything":        {good, ""},
		"a pair":            {Secret{Certificate: good.Certificate, Key: good.Key}, ""},
		"authorities":       {Secret{Authorities: good.Authorities}, ""},
		"several":           {Secret{Authorities: expired.Certificate + good.Certificate}, ""},
		"text around":       {with(func(s *Secret) { s.Certificate = "subject=web\n" + s.Certificate }), ""},
		"nothing":           {Secret{}, "it has neither a certificate"},
		"no key":            {with(func(s *Secret) { s.Key = "" }), "tls.crt or tls.key is missing"},
		"no certificate":    {with(func(s *Secret) { s.Certificate = "" }), "tls.crt or tls.key is missing"},
		"another key":       {with(func(s *Secret) { s.Key = other.Key }), "tls.key: tls: private key does not match public key"},
		"both swapped":      {with(func(s *Secret) { s.Certificate, s.Key = s.Key, s.Certificate }), `tls.crt: it has a block "PRIVATE KEY": want CERTIFICATE only`},
		"expired":           {expired, `tls.crt: the certificate for "old.test" expired on `},
		"not yet":           {pair(t, newKey(t, elliptic.P256()), "new.test", now.Add(2*time.Hour)), `tls.crt: the certificate for "new.test" is not valid before `},
		"no PEM":            {with(func(s *Secret) { s.Certificate = "web" }), "tls.crt: it is not PEM of type CERTIFICATE, or is cut off"},
		"cut off":           {with(func(s *Secret) { s.Certificate += s.Certificate[:100] }), "tls.crt: it is not PEM of type CERTIFICATE, or is cut off"},
		"no DER":            {with(func(s *Secret) { s.Certificate = encode("CERTIFICATE", []byte("web")) }), "tls.crt: x509: malformed certificate"},
		"a small curve":     {pair(t, newKey(t, elliptic.P224()), "web.test", now.Add(time.Minute)), "the curve is not supported"},
		"a short key":       {pair(t, short, "web.test", now.Add(time.Minute)), "an RSA key of 1024 bits is too short"},
		"Ed25519":           {pair(t, ed, "web.test", now.Add(time.Minute)), "this kind of key is not supported"},
		"expired authority": {Secret{Authorities: expired.Certificate}, `ca.crt: the certificate for "old.test" expired on `},
		"no authority":      {Secret{Authorities: good.Key}, `ca.crt: it has a block "PRIVATE KEY"`},
		"list alone":        {with(func(s *Secret) { s.Authorities = "" }), "ca.crl has no effect without ca.crt"},
		"old list":          {with(func(s *Secret) { s.Revoked = revoked(t, newKey(t, elliptic.P256()), now.Add(-time.Minute)) }), "ca.crl: the list of"},
	} {
		err := tc.secret.Check(now)
		if tc.want == "" && err != nil || tc.want != "" && (err == nil || !strings.Contains(err.Error(), tc.want)) {
			t.Errorf("%s: got %v, want %q", name, err, tc.want)
		}
	}
	for _, text := range []string{fmt.Sprint(good), fmt.Sprintf("%+v %#v %s", good, good, good)} {
		if strings.Contains(text, "PRIVATE KEY") {
			t.Errorf("printed is %s", text)
		}
	}
}

// FuzzCheck checks that no text of a secret panics, and that no error has the key.
func FuzzCheck(f *testing.F) {
	good := valid(f, "web.test")
	f.Add(good.Certificate, good.Key, good.Authorities, good.Revoked)
	f.Add(good.Key, good.Certificate, good.Revoked, good.Authorities)
	f.Add(good.Certificate, good.Key[:90], "-----BEGIN", "")
	f.Fuzz(func(t *testing.T, certificate, key, authorities, list string) {
		s := Secret{Certificate: certificate, Key: key, Authorities: authorities, Revoked: list}
		err := s.Check(time.Now())
		if err == nil {
			_ = describe(Name{"edge", "web"}, s, FromStore)
			return
		}
		for part := range strings.FieldsSeq(key) {
			if len(part) >= 40 && strings.Contains(err.Error(), part) {
				t.Errorf("the error has a part of the key: %v", err)
			}
		}
	})
}

// A secret has the resources that Istio's names say. Equal namespaces keep their pointers.
func TestSet(t *testing.T) {
	t.Parallel()
	both := Secret{Certificate: "c", Key: "k", Authorities: "a", Revoked: "r"}
	all := map[Name]Secret{
		{"edge", "web"}: both, {"edge", "web-cacert"}: {Authorities: "other"}, {"edge", "api"}: both,
		{"shop", "web-cacert"}: {Authorities: "a"},
	}
	set := NewSet(nil, all, nil)
	for _, tc := range []struct {
		namespace, resource string
		want                Secret
	}{
		{"edge", "kubernetes://web", Secret{Certificate: "c", Key: "k"}},
		{"edge", "kubernetes://web-cacert", Secret{Authorities: "other"}},
		{"edge", "kubernetes://api-cacert", Secret{Authorities: "a", Revoked: "r"}},
		{"edge", "kubernetes://none", Secret{}},
		{"edge", "kubernetes://edge/web", Secret{}},
		{"edge", "web", Secret{}},
		{"shop", "kubernetes://web", Secret{}},
		{"shop", "kubernetes://web-cacert", Secret{Authorities: "a"}},
		{"none", "kubernetes://web", Secret{}},
	} {
		got, ok := set.Namespace(tc.namespace, false).Resource(tc.resource)
		if got != tc.want || ok != (tc.want != Secret{}) {
			t.Errorf("%s of %s: wrong, or %v", tc.resource, tc.namespace, ok)
		}
	}
	if got := set.Having("kubernetes://web-cacert"); fmt.Sprint(got) != "[edge shop]" {
		t.Errorf("having: %v", got)
	}
	if NewSet(set, all, nil) != set {
		t.Error("an equal set has another pointer")
	}
	all[Name{"edge", "api"}] = Secret{Authorities: "a"}
	next := NewSet(set, all, nil)
	if next == set || next.Namespace("edge", false) == set.Namespace("edge", false) || next.Namespace("shop", false) != set.Namespace("shop", false) {
		t.Error("only the namespace edge changes")
	}
	set = NewSet(nil, all, func(n Name) bool { return n.Name == "api" })
	for _, may := range []bool{false, true} {
		if _, ok := set.Namespace("edge", may).Resource("kubernetes://api-cacert"); ok != may {
			t.Errorf("a restricted secret is there: %v, want %v", ok, may)
		}
	}
	if a, b := AuthoritiesResource("web"), AuthoritiesResource("kubernetes://web-cacert"); a != b || a != "kubernetes://web-cacert" {
		t.Errorf("authorities are %s and %s", a, b)
	}
}
