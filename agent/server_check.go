package agent

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/ashore-mesh/ashore/ca"
)

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
	roots *ca.Bundle
	hash  string
	// file is the setting xds.caFile, if roots are from there.
	file string
	// trustDomain is the mesh's; empty: not known yet, any is accepted.
	trustDomain string
	now         func() time.Time
}

// config returns the settings of a TLS client with this check. mine returns the client's
// certificate, which may be empty.
//
// InsecureSkipVerify turns off the verification of crypto/tls, which compares host names. verify
// replaces it and is called for every connection, including resumed ones.
func (c *serverCheck) config(mine func() *tls.Certificate) *tls.Config {
	return &tls.Config{
		MinVersion:           tls.VersionTLS13,
		InsecureSkipVerify:   true,
		VerifyConnection:     func(s tls.ConnectionState) error { return c.verify(s.PeerCertificates) },
		GetClientCertificate: func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return mine(), nil },
	}
}

// verify checks a server's certificates, its own first. They have to lead to a trusted root, be
// valid now, be for servers and name the control plane. Errors: ServerError.
func (c *serverCheck) verify(certs []*x509.Certificate) error {
	if len(certs) == 0 {
		return serverError("it presents no certificate: this is not the control plane's TLS port (15012)")
	}
	roots := c.roots
	if roots == nil {
		root, err := c.pinned(certs)
		if err != nil {
			return err
		}
		roots = ca.NewBundle(root)
	}
	now := c.now()
	opts := x509.VerifyOptions{Roots: roots.Pool(), Intermediates: pool(certs[1:]), CurrentTime: now,
		KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}}
	if _, err := certs[0].Verify(opts); err != nil {
		if text := clockProblem(certs, now); text != "" {
			return serverError("%s", text)
		}
		if c.file != "" {
			return serverError("its certificate does not lead to a root in %s (xds.caFile): %v; put the roots there that "+
				"\"ashorectl ca show --pem\" prints on that control plane", c.file, err)
		}
		return serverError("its certificate does not lead to a root that this workload trusts: %v; when the mesh has "+
			"a new root, join again", err)
	}
	return c.named(certs[0])
}

// pinned returns the certificate with the hash of the join command.
func (c *serverCheck) pinned(certs []*x509.Certificate) (*x509.Certificate, error) {
	for _, x := range certs {
		if x.IsCA && ca.RootID(x) == c.hash {
			return x, nil
		}
	}
	last := certs[len(certs)-1]
	return nil, serverError("its root certificate has the hash %s, and the join line says %s: this is not the control "+
		"plane that made the token, "+
		"or its root was changed since, or another server answers at this address; make a new line there with "+
		"\"ashorectl join-token create\", and do not go on if the hashes still differ", ca.RootID(last), c.hash)
}

// named checks that a certificate names the control plane: workloads have certificates from the
// same roots.
func (c *serverCheck) named(leaf *x509.Certificate) error {
	if len(leaf.URIs) != 1 {
		return serverError("its certificate names %d URIs, the control plane's names one: this is not a control "+
			"plane of Ashore", len(leaf.URIs))
	}
	switch uri := leaf.URIs[0]; {
	case uri.String() != ca.ControlPlaneID(uri.Host).String():
		return serverError("its certificate is that of %.200q and not of the control plane: another workload answers "+
			"at this address, do not trust it", uri)
	case c.trustDomain != "" && uri.Host != c.trustDomain:
		return serverError("it is the control plane of the trust domain %s, and this workload belongs to %s: join "+
			"again, with a new line of \"ashorectl join-token create\"", uri.Host, c.trustDomain)
	}
	return nil
}

// clockProblem describes a certificate that is not valid by this machine's clock; empty: all are
// valid.
func clockProblem(certs []*x509.Certificate, now time.Time) string {
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

// hashPrefix names the algorithm in front of a hash.
const hashPrefix = "sha256:"

// checkHash checks the form of a root certificate's hash.
func checkHash(hash string) error {
	digits, ok := strings.CutPrefix(hash, hashPrefix)
	raw, err := hex.DecodeString(digits)
	if !ok || err != nil || len(raw) != 32 || strings.ToLower(digits) != digits {
		return errors.New("want sha256: and 64 hexadecimal digits, as \"ashorectl join-token create\" prints it")
	}
	return nil
}
