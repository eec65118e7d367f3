package agent

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spiffe/go-spiffe/v2/spiffeid"
)

// controlPlanePath is the path of the identity that the control plane has, and no workload:
// spiffe://<trust domain>/ashore/control-plane.
const controlPlanePath = "/ashore/control-plane"

// ServerError is the reason why a server is not trusted as the mesh's control plane. Its text says
// what to do.
type ServerError struct{ Text string }

func (e *ServerError) Error() string { return e.Text }

func serverError(format string, args ...any) error {
	return &ServerError{fmt.Sprintf(format, args...)}
}

// serverCheck verifies that a server is the control plane. Immutable.
type serverCheck struct {
	// roots are the trusted ones. Nil: the presented certificate that has this hash.
	roots []*x509.Certificate
	hash  string
	// trustDomain is the mesh's; empty: not known yet, any is accepted.
	trustDomain string
	now         func() time.Time
}

// config returns the settings of a TLS client with this check. mine returns the client's
// certificate; nil: it has none.
//
// InsecureSkipVerify turns off the verification of crypto/tls, which compares host names. verify
// replaces it and is called for every connection, including resumed ones.
func (c *serverCheck) config(mine func() *tls.Certificate) *tls.Config {
	cfg := &tls.Config{
		MinVersion:         tls.VersionTLS13,
		InsecureSkipVerify: true,
		VerifyConnection:   func(s tls.ConnectionState) error { _, err := c.verify(s.PeerCertificates); return err },
	}
	if mine != nil {
		cfg.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return mine(), nil }
	}
	return cfg
}

// verify checks a server's certificates, its own first. They have to lead to a trusted root, be
// valid now, be for servers and name the control plane. It returns the trust domain. Errors:
// ServerError.
func (c *serverCheck) verify(certs []*x509.Certificate) (trustDomain string, err error) {
	if len(certs) == 0 {
		return "", serverError("it presents no certificate: this is not the control plane's TLS port (15012)")
	}
	roots := c.roots
	if roots == nil {
		root, err := c.pinned(certs)
		if err != nil {
			return "", err
		}
		roots = []*x509.Certificate{root}
	}
	now := c.now()
	opts := x509.VerifyOptions{Roots: pool(roots), Intermediates: pool(certs[1:]), CurrentTime: now,
		KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}}
	if _, err := certs[0].Verify(opts); err != nil {
		if text := clockTrouble(certs, now); text != "" {
			return "", serverError("%s", text)
		}
		return "", serverError("its certificate does not lead to a root that this workload trusts: %v; when the mesh has "+
			"a new root, join again", err)
	}
	return c.named(certs[0])
}

// pinned returns the certificate with the hash of the join command.
func (c *serverCheck) pinned(certs []*x509.Certificate) (*x509.Certificate, error) {
	i := slices.IndexFunc(certs, func(x *x509.Certificate) bool { return hashOf(x) == c.hash })
	if i >= 0 && certs[i].IsCA {
		return certs[i], nil
	}
	last := certs[len(certs)-1]
	if i >= 0 {
		return nil, serverError("the hash %s is not that of a root but of a certificate that is no authority's; use the "+
			"line that \"ashorectl join-token create\" prints", c.hash)
	}
	return nil, serverError("its root certificate has the hash %s, and the join line says %s: this is not the control "+
		"plane that made the token, "+
		"or its root was changed since, or another server answers at this address; make a new line there with "+
		"\"ashorectl join-token create\", and do not go on if the hashes still differ", hashOf(last), c.hash)
}

// named checks that a certificate names the control plane: workloads have certificates from the
// same roots.
func (c *serverCheck) named(leaf *x509.Certificate) (trustDomain string, err error) {
	if len(leaf.URIs) != 1 {
		return "", serverError("its certificate names %d URIs, the control plane's names one: this is not a control "+
			"plane of Ashore", len(leaf.URIs))
	}
	text := leaf.URIs[0].String()
	id, err := spiffeid.FromString(text)
	switch {
	case err != nil || id.Path() != controlPlanePath || id.String() != text:
		return "", serverError("its certificate is that of %.200q and not of the control plane: another workload answers "+
			"at this address, do not trust it", text)
	case c.trustDomain != "" && id.TrustDomain().Name() != c.trustDomain:
		return "", serverError("it is the control plane of the trust domain %s, and this workload belongs to %s: join "+
			"again, with a new line of \"ashorectl join-token create\"", id.TrustDomain().Name(), c.trustDomain)
	}
	return id.TrustDomain().Name(), nil
}

// clockTrouble describes a certificate that is not valid by this machine's clock; empty: all are
// valid.
func clockTrouble(certs []*x509.Certificate, now time.Time) string {
	for _, c := range certs {
		var what string
		switch {
		case now.Before(c.NotBefore):
			what = fmt.Sprintf("begins at %s, %s from now", c.NotBefore.UTC().Format(time.RFC3339),
				span(c.NotBefore.Sub(now)))
		case now.After(c.NotAfter):
			what = fmt.Sprintf("ended at %s, %s ago", c.NotAfter.UTC().Format(time.RFC3339), span(now.Sub(c.NotAfter)))
		default:
			continue
		}
		return fmt.Sprintf("its certificate %s %s by this machine's clock (%s): set the clock (timedatectl, chrony), or "+
			"look at the control plane's certificates (ashorectl ca show) when the clock is right",
			serialText(c), what, now.UTC().Format(time.RFC3339))
	}
	return ""
}

// span formats a duration for people.
func span(d time.Duration) string {
	switch {
	case d >= 48*time.Hour:
		return fmt.Sprintf("%d days", int(d.Hours())/24)
	case d >= time.Hour:
		return d.Round(time.Minute).String()
	}
	return d.Round(time.Second).String()
}

// checkHash checks the form of a root certificate's hash.
func checkHash(hash string) error {
	digits, ok := strings.CutPrefix(hash, hashPrefix)
	raw, err := hex.DecodeString(digits)
	if !ok || err != nil || len(raw) != 32 || strings.ToLower(digits) != digits {
		return errors.New("want sha256: and 64 hexadecimal digits, as \"ashorectl join-token create\" prints it")
	}
	return nil
}
