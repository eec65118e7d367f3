package spiffe

import (
	"crypto/x509"
	"errors"
	"fmt"
	"net/url"
	"strings"

	"github.com/spiffe/go-spiffe/v2/spiffeid"
)

// ID is the identity of a workload. The zero value is no identity. Comparable.
type ID struct {
	// TrustDomain is the trust domain: "cluster.local".
	TrustDomain string
	// Namespace is the namespace of the workload.
	Namespace string
	// ServiceAccount is the service account within the namespace.
	ServiceAccount string
}

// ErrForm means that a text is not an ID of a workload.
var ErrForm = errors.New("not of the form spiffe://<trust domain>/ns/<namespace>/sa/<service account>")

// New returns an ID. It returns an error if a part is invalid.
func New(trustDomain, namespace, serviceAccount string) (ID, error) {
	td, err := spiffeid.TrustDomainFromString(trustDomain)
	if err != nil || td.Name() != trustDomain {
		return ID{}, fmt.Errorf("%q cannot be a trust domain: lower-case letters, digits, dots, dashes and underscores are allowed", trustDomain)
	}
	for _, p := range []struct{ what, text string }{{"namespace", namespace}, {"service account", serviceAccount}} {
		if err := spiffeid.ValidatePathSegment(p.text); err != nil {
			return ID{}, fmt.Errorf("%q cannot be a %s in an identity: letters, digits, dots, dashes and underscores are allowed", p.text, p.what)
		}
	}
	if len(trustDomain)+len(namespace)+len(serviceAccount) > maxLength {
		return ID{}, fmt.Errorf("an identity has at most %d bytes", maxLength)
	}
	return ID{trustDomain, namespace, serviceAccount}, nil
}

// maxLength bounds an ID without its fixed parts. The SPIFFE specification bounds all of it to 2048
// bytes.
const maxLength = 2000

// Parse reads an ID in its exact form: nothing is normalised. Errors: ErrForm, or a part that is
// not permitted in one.
func Parse(s string) (ID, error) {
	rest, ok := strings.CutPrefix(s, "spiffe://")
	parts := strings.Split(rest, "/")
	if !ok || len(parts) != 5 || parts[1] != "ns" || parts[3] != "sa" {
		return ID{}, fmt.Errorf("%w: %.200q", ErrForm, s)
	}
	return New(parts[0], parts[2], parts[4])
}

// String is the ID as a URI.
func (id ID) String() string {
	if id == (ID{}) {
		return ""
	}
	return "spiffe://" + id.TrustDomain + "/ns/" + id.Namespace + "/sa/" + id.ServiceAccount
}

// URL is the ID as a URI.
func (id ID) URL() *url.URL {
	return &url.URL{Scheme: "spiffe", Host: id.TrustDomain, Path: "/ns/" + id.Namespace + "/sa/" + id.ServiceAccount}
}

// Of returns the ID that a certificate names. It does not verify the certificate. Errors: it names
// none, several, or something that is not one.
func Of(c *x509.Certificate) (ID, error) {
	if n := len(c.URIs); n != 1 {
		return ID{}, fmt.Errorf("the certificate names %d URIs, an identity needs exactly one", n)
	}
	return Parse(c.URIs[0].String())
}
