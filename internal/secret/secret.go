package secret

import (
	"bytes"
	"cmp"
	"crypto/ecdsa"
	"crypto/rsa"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/ashore-mesh/ashore/internal/dnsname"
)

// Name is the name of a secret. Comparable.
type Name struct {
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
}

// String returns "shop/web".
func (n Name) String() string { return n.Namespace + "/" + n.Name }

// Check returns an error if no Gateway could name the secret.
func (n Name) Check() error {
	if !dnsname.Valid(n.Namespace) || strings.Contains(n.Namespace, ".") || !dnsname.Valid(n.Name) {
		return fmt.Errorf("secret %s: want NAMESPACE/NAME of lower-case letters, digits and \"-\"", n)
	}
	return nil
}

// Secret is a certificate with its key, or authorities, or both, in PEM. Comparable. The names of
// its parts in JSON are those of Kubernetes' secrets, and of files.
type Secret struct {
	// Certificate is the chain, the leaf first. Empty: the secret has authorities only.
	Certificate string `json:"tls.crt,omitempty"`
	// Key is the private key of the leaf.
	Key string `json:"tls.key,omitempty"`
	// Authorities verify the peer's certificate.
	Authorities string `json:"ca.crt,omitempty"`
	// Revoked are lists of certificates that the authorities have revoked.
	Revoked string `json:"ca.crl,omitempty"`
}

// part is a part of a secret by the name of its file.
type part struct {
	file  string
	value *string
}

func (s *Secret) parts() []part {
	return []part{{"tls.crt", &s.Certificate}, {"tls.key", &s.Key}, {"ca.crt", &s.Authorities}, {"ca.crl", &s.Revoked}}
}

// String keeps the key out of texts.
func (s Secret) String() string { return "[redacted]" }

// GoString is String, for %#v.
func (s Secret) GoString() string { return s.String() }

// Check returns an error if proxies could not use the secret at that time. It never has a part of
// the key.
func (s Secret) Check(now time.Time) error { return cmp.Or(s.checkPublic(now), s.checkKey()) }

// checkPublic checks everything but the key, which costs much more.
func (s Secret) checkPublic(now time.Time) error {
	switch {
	case (s.Certificate == "") != (s.Key == ""):
		return errors.New("a certificate and its key belong together: tls.crt or tls.key is missing")
	case s.Certificate == "" && s.Authorities == "":
		return errors.New("it has neither a certificate (tls.crt, tls.key) nor authorities (ca.crt)")
	case s.Authorities == "" && s.Revoked != "":
		return errors.New("ca.crl has no effect without ca.crt: add the authorities, or remove it")
	}
	if s.Certificate != "" {
		chain, err := certificates(s.Certificate)
		for _, c := range chain {
			err = cmp.Or(err, checkTime(c, now))
		}
		if err != nil {
			return fmt.Errorf("tls.crt: %w", err)
		}
	}
	if s.Authorities != "" {
		list, err := certificates(s.Authorities)
		valid := func(c *x509.Certificate) bool { return checkTime(c, now) == nil }
		if err == nil && !slices.ContainsFunc(list, valid) {
			err = checkTime(list[0], now)
		}
		if err != nil {
			return fmt.Errorf("ca.crt: %w", err)
		}
	}
	if s.Revoked != "" {
		if err := checkRevoked(s.Revoked, now); err != nil {
			return fmt.Errorf("ca.crl: %w", err)
		}
	}
	return nil
}

// checkKey checks that the key fits the certificate, and that Envoy can use it.
// Source: Envoy, ContextImpl: RSA keys of 2,048 bits or more, and ECDSA keys on three curves.
func (s Secret) checkKey() error {
	if s.Certificate == "" {
		return nil
	}
	pair, err := tls.X509KeyPair([]byte(s.Certificate), []byte(s.Key))
	if err != nil {
		return fmt.Errorf("tls.key: %w", err)
	}
	const shortest = 2048
	switch key := pair.Leaf.PublicKey.(type) {
	case *ecdsa.PublicKey:
		if key.Curve.Params().BitSize < 256 {
			return errors.New("tls.key: the curve is not supported: use P-256, P-384 or P-521")
		}
	case *rsa.PublicKey:
		if key.N.BitLen() < shortest {
			return fmt.Errorf("tls.key: an RSA key of %d bits is too short: use %d or more", key.N.BitLen(), shortest)
		}
	default:
		return errors.New("tls.key: this kind of key is not supported: use RSA or ECDSA")
	}
	return nil
}

// checkTime returns an error if a certificate is not valid at that time.
func checkTime(c *x509.Certificate, now time.Time) error {
	switch {
	case now.After(c.NotAfter):
		return fmt.Errorf("the certificate for %q expired on %s", hosts(c)[0], c.NotAfter.UTC().Format(time.RFC3339))
	case now.Before(c.NotBefore):
		return fmt.Errorf("the certificate for %q is not valid before %s", hosts(c)[0], c.NotBefore.UTC().Format(time.RFC3339))
	}
	return nil
}

// hosts returns the DNS names in a certificate, or its subject if there are none.
func hosts(c *x509.Certificate) []string {
	if len(c.DNSNames) > 0 {
		return c.DNSNames
	}
	return []string{c.Subject.String()}
}

// certificates parses a PEM text that has certificates only, at least one.
func certificates(text string) ([]*x509.Certificate, error) {
	var out []*x509.Certificate
	err := blocks(text, "CERTIFICATE", func(der []byte) error {
		c, err := x509.ParseCertificate(der)
		if err == nil {
			out = append(out, c)
		}
		return err
	})
	return out, err
}

// checkRevoked checks lists of revoked certificates. Envoy refuses every certificate of an authority
// whose list is out of date.
func checkRevoked(text string, now time.Time) error {
	return blocks(text, "X509 CRL", func(der []byte) error {
		list, err := x509.ParseRevocationList(der)
		if err == nil && !list.NextUpdate.IsZero() && now.After(list.NextUpdate) {
			err = fmt.Errorf("the list of %q is out of date since %s, and would refuse everybody", list.Issuer,
				list.NextUpdate.UTC().Format(time.RFC3339))
		}
		return err
	})
}

// blocks calls f with each block of a PEM text. Errors: that of f, another type of block, or none.
func blocks(text, typ string, f func(der []byte) error) error {
	rest, found := []byte(text), false
	for {
		var b *pem.Block
		if b, rest = pem.Decode(rest); b == nil {
			break
		}
		if b.Type != typ {
			return fmt.Errorf("it has a block %.40q: want %s only", b.Type, typ)
		}
		if err := f(b.Bytes); err != nil {
			return err
		}
		found = true
	}
	if !found || bytes.Contains(rest, []byte("-----BEGIN")) {
		return fmt.Errorf("it is not PEM of type %s, or is cut off", typ)
	}
	return nil
}
