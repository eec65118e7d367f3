package ca

import (
	"cmp"
	"crypto/x509"
	"encoding/hex"
	"fmt"
	"maps"
	"math/big"
	"slices"
	"strings"
	"time"

	"github.com/ashore-mesh/ashore/internal/record"
	"github.com/ashore-mesh/ashore/internal/spiffe"
)

// RevocationKind is the kind of subject that a revocation names.
type RevocationKind string

// The kinds of revocations.
const (
	// RevokeIdentity revokes every workload with a SPIFFE ID.
	RevokeIdentity RevocationKind = "identity"
	// RevokeWorkload revokes one "namespace/name": its certificates, their renewal, and joining
	// under this name. A workload that proves itself by a JWT without a pod has a new name for each
	// new key: revoke its identity instead.
	RevokeWorkload RevocationKind = "workload"
	// RevokeSerial revokes one certificate. Its workload may have others.
	RevokeSerial RevocationKind = "serial"
)

// Revocation is the record of one subject that is, or was, revoked. A subject has one record. Each
// change of it has the next epoch, and the record with the highest epoch counts.
type Revocation struct {
	Kind RevocationKind `json:"kind"`
	// Name is the SPIFFE ID, the "namespace/name", or the serial number in hexadecimal digits.
	Name string `json:"name"`
	// Revoked is false when the subject was restored. The record stays, so that an older copy of it
	// cannot come back.
	Revoked bool   `json:"revoked"`
	Epoch   uint64 `json:"epoch"`
	// Reason, By and At are those of the latest change.
	Reason string    `json:"reason,omitempty"`
	By     string    `json:"by,omitempty"`
	At     time.Time `json:"at"`
	// Until is when the certificate with a serial number expires; zero for other kinds.
	Until time.Time `json:"until,omitzero"`
	// Certificates are those that were known when the subject was revoked.
	Certificates []Leaf `json:"certificates,omitempty"`
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

	subjects    map[record.Key]bool // those in List
	identity    map[string]bool     // Identities
	certificate map[string]bool     // Certificates, and those that expired longer ago
}

// revocationKey is the key of the record of a subject. A SPIFFE ID may be longer than the name of a
// record.
func revocationKey(kind RevocationKind, name string) record.Key {
	return record.Key{Table: "revocation", Name: string(kind) + "/" + hexSum([]byte(name))}
}

func (r *Revocation) key() record.Key { return revocationKey(r.Kind, r.Name) }

// newer reports whether a record of this replica counts more than that of the store. A pending
// change does: it is written with the next epoch.
func (r *Revocation) newer(stored Revocation) bool { return r.Pending || r.Epoch > stored.Epoch }

// ended reports whether a revoked certificate can be neither used nor renewed any more, so long
// after it expired. Revocations of other kinds do not end.
func (r *Revocation) ended(now time.Time, after time.Duration) bool {
	return !r.Until.IsZero() && now.After(r.Until.Add(after))
}

// Fingerprint is the SHA-256 of a certificate's DER in hexadecimal digits, as Envoy's filters
// compare it.
func Fingerprint(c *x509.Certificate) string { return hexSum(c.Raw) }

// serialText is a certificate's serial number as Envoy and openssl write it: two hexadecimal digits
// for each byte.
func serialText(c *x509.Certificate) string { return hex.EncodeToString(c.SerialNumber.Bytes()) }

// normalise returns the name of a subject in the form in which it is stored. A serial number may
// have colons, leading zeros and capitals.
func (k RevocationKind) normalise(name string) (string, error) {
	switch k {
	case RevokeIdentity:
		id, err := spiffe.Parse(name)
		return id.String(), err
	case RevokeWorkload:
		if ns, short, ok := strings.Cut(name, "/"); !ok || ns == "" || short == "" || len(name) > record.MaxName/2+200 {
			return "", fmt.Errorf("%.200q is not a workload: want namespace/name", name)
		}
		return name, nil
	case RevokeSerial:
		n, ok := new(big.Int).SetString(strings.ReplaceAll(name, ":", ""), 16)
		if !ok || n.Sign() <= 0 || len(name) > 80 {
			return "", fmt.Errorf("%.80q is not a serial number: want hexadecimal digits", name)
		}
		return hex.EncodeToString(n.Bytes()), nil
	}
	return "", fmt.Errorf("%.40q cannot be revoked: want identity, workload or serial", string(k))
}

// newRevocations collects the records that are in force. An identity that is revoked in one trust
// domain of this mesh is revoked in all. Certificates that expired before a time are not in
// Certificates.
func newRevocations(known map[record.Key]Revocation, domains []string, expired time.Time) *Revocations {
	s := &Revocations{subjects: map[record.Key]bool{}, identity: map[string]bool{}, certificate: map[string]bool{}}
	for key, x := range known {
		if !x.Revoked {
			continue
		}
		s.List = append(s.List, x)
		s.subjects[key] = true
		if x.Kind == RevokeIdentity {
			s.identity[x.Name] = true
			id, err := spiffe.Parse(x.Name)
			if err == nil && slices.Contains(domains, id.TrustDomain) {
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
	slices.SortFunc(s.List, func(a, b Revocation) int { return cmp.Or(a.At.Compare(b.At), cmp.Compare(a.Name, b.Name)) })
	s.Identities = slices.Sorted(maps.Keys(s.identity))
	slices.Sort(s.Certificates)
	s.Certificates = slices.Compact(s.Certificates)
	return s
}

// Has reports whether a subject is revoked.
func (r *Revocations) Has(kind RevocationKind, name string) bool {
	return r.subjects[revocationKey(kind, name)]
}

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
