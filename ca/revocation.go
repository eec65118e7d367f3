package ca

import (
	"cmp"
	"crypto/x509"
	"encoding/hex"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/ashore-mesh/ashore/internal/admin"
	"github.com/ashore-mesh/ashore/internal/record"
	"github.com/ashore-mesh/ashore/internal/spiffe"
)

// Revocation is the record of one subject that is, or was, revoked. A subject has one record. Each
// change of it has the next epoch, and the record with the highest epoch counts.
type Revocation struct {
	// Subject is a SPIFFE ID, which stands for every workload that has it, or one workload,
	// "namespace/name". Revoking a workload revokes its certificates, their renewal, and joining under
	// its name.
	Subject string `json:"subject"`
	// Revoked is false when the subject was restored. The record stays, so that an older copy of it
	// cannot come back.
	Revoked bool   `json:"revoked"`
	Epoch   uint64 `json:"epoch"`
	// Reason, By and At are those of the latest change.
	Reason string    `json:"reason,omitempty"`
	By     string    `json:"by,omitempty"`
	At     time.Time `json:"at"`
	// Certificates are those of a workload that were known when it was revoked.
	Certificates []admin.Leaf `json:"certificates,omitempty"`
	// Pending means that the store does not have this change yet. It is only set in the local file.
	Pending bool `json:"pending,omitempty"`
}

// Revocations is everything that is revoked at one moment. Immutable.
type Revocations struct {
	// List is ordered by time, oldest first.
	List []Revocation
	// Identities are the revoked SPIFFE IDs in all trust domains of this mesh, sorted.
	Identities []string
	// Certificates are those that may still be used on open connections: the SHA-256 of each in DER
	// as hexadecimal digits, sorted.
	Certificates []string

	subjects    map[string]bool // those in List
	identity    map[string]bool // Identities
	certificate map[string]bool // Certificates, and those that expired longer ago
}

// revocationName is the name of the record of a subject. A SPIFFE ID may be longer than the name of
// a record.
func revocationName(subject string) string { return hexSum([]byte(subject)) }

// newer reports whether a record of this replica counts more than that of the store. A pending
// change does: it is written with the next epoch.
func (r *Revocation) newer(stored Revocation) bool { return r.Pending || r.Epoch > stored.Epoch }

// Fingerprint is the SHA-256 of a certificate's DER in hexadecimal digits, as Envoy's filters
// compare it.
func Fingerprint(c *x509.Certificate) string { return hexSum(c.Raw) }

// serialText is a certificate's serial number as Envoy and openssl write it: two hexadecimal digits
// for each byte.
func serialText(c *x509.Certificate) string { return hex.EncodeToString(c.SerialNumber.Bytes()) }

// maxSubject bounds the name of a workload, in bytes.
const maxSubject = record.MaxName - 50

// IsIdentity reports whether a subject is a SPIFFE ID. Otherwise it is a workload.
func IsIdentity(subject string) bool { return strings.HasPrefix(subject, "spiffe://") }

// CheckSubject returns why a text is not a subject of revocations.
func CheckSubject(subject string) error {
	if IsIdentity(subject) {
		_, err := spiffe.Parse(subject)
		return err
	}
	ns, name, _ := strings.Cut(subject, "/")
	if ns == "" || name == "" || strings.Contains(name, "/") || len(subject) > maxSubject {
		return fmt.Errorf("%.200q is not a workload: want NAMESPACE/NAME or spiffe://…", subject)
	}
	return nil
}

// newRevocations collects the records that are in force. An identity that is revoked in one trust
// domain of this mesh is revoked in all. Certificates that expired before a time are not in
// Certificates.
func newRevocations(known map[string]Revocation, domains []string, expired time.Time) *Revocations {
	s := &Revocations{subjects: map[string]bool{}, identity: map[string]bool{}, certificate: map[string]bool{}}
	for subject, x := range known {
		if !x.Revoked {
			continue
		}
		s.List = append(s.List, x)
		s.subjects[subject] = true
		if id, err := spiffe.Parse(subject); err == nil {
			s.identity[subject] = true
			if slices.Contains(domains, id.TrustDomain) {
				for _, id.TrustDomain = range domains {
					s.identity[id.String()] = true
				}
			}
		}
		for _, c := range x.Certificates {
			s.certificate[c.SHA256] = true
			if c.NotAfter.After(expired) {
				s.Certificates = append(s.Certificates, c.SHA256)
			}
		}
	}
	slices.SortFunc(s.List,
		func(a, b Revocation) int { return cmp.Or(a.At.Compare(b.At), cmp.Compare(a.Subject, b.Subject)) })
	s.Identities = slices.Sorted(maps.Keys(s.identity))
	slices.Sort(s.Certificates)
	s.Certificates = slices.Compact(s.Certificates)
	return s
}

// Has reports whether a subject is revoked.
func (r *Revocations) Has(subject string) bool { return r.subjects[subject] }

// refuse returns why a certificate of an identity is revoked, or nil.
func (r *Revocations) refuse(identity, fingerprint string) error {
	switch {
	case r.identity[identity]:
		return fmt.Errorf("identity %s is revoked", identity)
	case r.certificate[fingerprint]:
		return fmt.Errorf("certificate %s of %s is revoked", fingerprint, identity)
	}
	return nil
}
