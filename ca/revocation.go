package ca

import (
	"cmp"
	"crypto/sha256"
	"crypto/x509"
	"encoding/hex"
	"errors"
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
	// Format is 1.
	Format int            `json:"v"`
	Kind   RevocationKind `json:"kind"`
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
	// Until is when the certificate with a serial number ends; zero for other kinds.
	Until time.Time `json:"until,omitzero"`
	// Certificates are those that were known when the subject was revoked.
	Certificates []RevokedLeaf `json:"certificates,omitempty"`
	// Pending says that the store does not have this change yet. It is only set in the local file.
	Pending bool `json:"pending,omitempty"`
}

// RevokedLeaf is a revoked certificate.
type RevokedLeaf struct {
	// SHA256 is the hash of its DER in hexadecimal digits.
	SHA256   string    `json:"sha256"`
	NotAfter time.Time `json:"notAfter"`
}

// Revocations is everything that is revoked at one moment. Immutable.
type Revocations struct {
	// List is ordered by time, oldest first.
	List []Revocation
	// Identities are SPIFFE IDs, sorted.
	Identities []string
	// Certificates are those that may still be used on open connections: the SHA-256 of each in DER
	// as hexadecimal digits, sorted.
	Certificates []string

	subjects    map[record.Key]bool // those in List
	certificate map[string]bool     // Certificates, and those that ended longer ago
}

const revocationTable = "revocation"

// revocationKey is where the record of a subject is stored. A SPIFFE ID may be longer than the name
// of a record.
func revocationKey(kind RevocationKind, name string) record.Key {
	sum := sha256.Sum256([]byte(name))
	return record.Key{Table: revocationTable, Name: string(kind) + "/" + hex.EncodeToString(sum[:])}
}

func (r *Revocation) key() record.Key { return revocationKey(r.Kind, r.Name) }

// decodeRevocation reads a stored revocation.
func decodeRevocation(value []byte) (Revocation, error) {
	var r Revocation
	if err := decodeRecord(value, &r); err != nil {
		return Revocation{}, fmt.Errorf("revocation: %w", err)
	}
	r.Pending = false
	return r, r.check()
}

// check returns what is wrong with a revocation that was read.
func (r *Revocation) check() error {
	if name, err := r.Kind.normalise(r.Name); err != nil || name != r.Name {
		return fmt.Errorf("revocation of %.40q %.200q: its record names nothing that can be revoked", r.Kind, r.Name)
	}
	for _, c := range r.Certificates {
		if !isHash(c.SHA256) {
			return fmt.Errorf("revocation of %s %.200q: its record holds no hash of a certificate", r.Kind, r.Name)
		}
	}
	return nil
}

// newer reports whether a record of this replica counts more than that of the store. A pending change
// does: it is written with the next epoch.
func (r *Revocation) newer(stored Revocation) bool { return r.Pending || r.Epoch > stored.Epoch }

// ended says that a revoked certificate can neither be shown nor renewed at a time. Revocations of
// other kinds do not end.
func (r *Revocation) ended(now time.Time, after time.Duration) bool {
	return !r.Until.IsZero() && now.After(r.Until.Add(after))
}

// Fingerprint is the SHA-256 of a certificate's DER in hexadecimal digits, as Envoy's filters
// compare it.
func Fingerprint(c *x509.Certificate) string {
	sum := sha256.Sum256(c.Raw)
	return hex.EncodeToString(sum[:])
}

// serialText is a certificate's serial number as Envoy and openssl write it: two hexadecimal digits
// for each byte.
func serialText(c *x509.Certificate) string { return hex.EncodeToString(c.SerialNumber.Bytes()) }

// parseSerial takes a serial number as people copy it: with colons, leading zeros or capitals.
func parseSerial(text string) (string, error) {
	n, ok := new(big.Int).SetString(strings.ReplaceAll(text, ":", ""), 16)
	if !ok || n.Sign() <= 0 || len(text) > 80 {
		return "", fmt.Errorf("%.80q is not a serial number: want hexadecimal digits", text)
	}
	return hex.EncodeToString(n.Bytes()), nil
}

// normalise returns the name of a subject in the form in which it is stored.
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
		return parseSerial(name)
	}
	return "", fmt.Errorf("%.40q cannot be revoked: want identity, workload or serial", string(k))
}

// newRevocations collects the records that are in force. Certificates that ended before a time are
// left out of Certificates.
func newRevocations(known map[record.Key]Revocation, ended time.Time) *Revocations {
	s := &Revocations{subjects: map[record.Key]bool{}, certificate: map[string]bool{}}
	for key, x := range known {
		if !x.Revoked {
			continue
		}
		s.List = append(s.List, x)
		s.subjects[key] = true
		if x.Kind == RevokeIdentity {
			s.Identities = append(s.Identities, x.Name)
		}
		for _, c := range x.Certificates {
			s.certificate[c.SHA256] = true
			if c.NotAfter.After(ended) {
				s.Certificates = append(s.Certificates, c.SHA256)
			}
		}
	}
	slices.SortFunc(s.List, func(a, b Revocation) int { return cmp.Or(a.At.Compare(b.At), cmp.Compare(a.Name, b.Name)) })
	slices.Sort(s.Identities)
	slices.Sort(s.Certificates)
	s.Certificates = slices.Compact(s.Certificates)
	return s
}

// Has says whether a subject is revoked.
func (r *Revocations) Has(kind RevocationKind, name string) bool {
	return r.subjects[revocationKey(kind, name)]
}

// revoked reports whether a certificate, or its workload, is revoked.
func (r *Revocations) revoked(workload string, leaf Leaf) bool {
	return r.certificate[leaf.SHA256] || r.Has(RevokeWorkload, workload)
}

// localRevocations is the file of a replica: everything that it knows of revocations.
type localRevocations struct {
	Format      int          `json:"v"`
	Revocations []Revocation `json:"revocations"`
}

// decodeLocalRevocations reads the file of a replica.
func decodeLocalRevocations(text []byte) (map[record.Key]Revocation, error) {
	var f localRevocations
	if err := decodeRecord(text, &f); err != nil {
		return nil, err
	}
	known := map[record.Key]Revocation{}
	var errs []error
	for _, x := range f.Revocations {
		known[x.key()] = x
		errs = append(errs, x.check())
	}
	return known, errors.Join(errs...)
}

// encodeLocal is the text of the file of a replica, in the order of the keys.
func encodeLocal(known map[record.Key]Revocation) localRevocations {
	f := localRevocations{Format: 1, Revocations: []Revocation{}}
	byName := func(a, b record.Key) int { return cmp.Compare(a.Name, b.Name) }
	for _, key := range slices.SortedFunc(maps.Keys(known), byName) {
		f.Revocations = append(f.Revocations, known[key])
	}
	return f
}
