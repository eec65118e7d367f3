package ca

import (
	"cmp"
	"context"
	"crypto/sha256"
	"crypto/x509"
	"encoding/hex"
	"errors"
	"fmt"
	"math/big"
	"slices"
	"strings"
	"time"

	"github.com/ashore-mesh/ashore/internal/audit"
	"github.com/ashore-mesh/ashore/internal/record"
	"github.com/ashore-mesh/ashore/internal/spiffe"
)

// RevocationKind is what a revocation puts out.
type RevocationKind string

// The kinds of revocations.
const (
	// RevokeIdentity puts out everybody with a SPIFFE ID, for as long as it stands.
	RevokeIdentity RevocationKind = "identity"
	// RevokeWorkload puts out one "namespace/name": all its certificates, renewal, and joining
	// under this name again. One that proves itself by a JWT which names no pod has a new name for
	// each new key: revoke its identity instead.
	RevokeWorkload RevocationKind = "workload"
	// RevokeSerial puts out one certificate. Its workload stays, also with another certificate for
	// the same key.
	RevokeSerial RevocationKind = "serial"
)

// Revocation is one thing that is put out.
type Revocation struct {
	// Format is 1.
	Format int            `json:"v"`
	Kind   RevocationKind `json:"kind"`
	// Name is the SPIFFE ID, the "namespace/name", or the serial number in hexadecimal digits.
	Name string `json:"name"`
	// Reason and By are an operator's.
	Reason string    `json:"reason,omitempty"`
	By     string    `json:"by,omitempty"`
	At     time.Time `json:"at"`
	// Until is when it matters no longer, for a serial: when the certificate has ended. Zero: it
	// stands until it is restored.
	Until time.Time `json:"until,omitzero"`
	// Certificates are those that it puts out: of a workload no more can come.
	Certificates []RevokedLeaf `json:"certificates,omitempty"`
	// Epoch is that of Revocations since it; zero in records of before there was one.
	Epoch uint64 `json:"epoch,omitempty"`
}

// RevokedLeaf is a certificate that is put out.
type RevokedLeaf struct {
	// SHA256 is the hash of its DER in hexadecimal digits.
	SHA256   string    `json:"sha256"`
	NotAfter time.Time `json:"notAfter"`
}

// Revocations is everybody who is out, as of one moment. Immutable.
type Revocations struct {
	// List is all there is, oldest first.
	List []Revocation
	// Identities are SPIFFE IDs, sorted.
	Identities []string
	// Certificates are leaves by which requests may still come, over connections from before their
	// end too: the SHA-256 of each in DER as hexadecimal digits, sorted.
	Certificates []string
	// Epoch grows with each revocation, and with nothing else.
	Epoch uint64

	has map[thing]bool // what is in List
}

// thing is what a revocation puts out.
type thing struct {
	kind RevocationKind
	name string
}

const (
	revocationTable = "revocation"
	// epochName is the record of the epoch; those of revocations have a '/' in their name.
	epochName = "epoch"
)

// epochRecord counts revocations.
type epochRecord struct {
	Format int    `json:"v"`
	Epoch  uint64 `json:"epoch"`
}

func (r *Revocation) format() int  { return r.Format }
func (e *epochRecord) format() int { return e.Format }

// revocationKey is where a revocation stands. An ID may be longer than the name of a record.
func revocationKey(kind RevocationKind, name string) record.Key {
	sum := sha256.Sum256([]byte(name))
	return record.Key{Table: revocationTable, Name: string(kind) + "/" + hex.EncodeToString(sum[:])}
}

// decodeRevocation reads a revocation's record.
func decodeRevocation(value []byte) (Revocation, error) {
	var r Revocation
	if err := decodeRecord(value, &r); err != nil {
		return Revocation{}, fmt.Errorf("revocation: %w", err)
	}
	return r, r.check()
}

// check says what is wrong with a revocation that was read.
func (r *Revocation) check() error {
	switch r.Kind {
	case RevokeIdentity, RevokeWorkload, RevokeSerial:
	default:
		return fmt.Errorf("revocation: its record has the unknown kind %.40q", r.Kind)
	}
	for _, c := range r.Certificates {
		if !isHash(c.SHA256) {
			return fmt.Errorf("revocation of %s %.200q: its record holds no hash of a certificate", r.Kind, r.Name)
		}
	}
	return nil
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

// parseSerial takes a serial number as people copy it: with colons, zeros in front, or capitals.
func parseSerial(text string) (string, error) {
	n, ok := new(big.Int).SetString(strings.ReplaceAll(text, ":", ""), 16)
	if !ok || n.Sign() <= 0 || len(text) > 80 {
		return "", fmt.Errorf("%.80q is not a serial number: want hexadecimal digits", text)
	}
	return hex.EncodeToString(n.Bytes()), nil
}

// normalise is the name by which something is revoked. Errors: it is not a name of its kind.
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

// Watch tells, until ctx ends and while Run runs, after revocations have changed, also by another
// replica.
func (l *Ledger) Watch(ctx context.Context) <-chan struct{} {
	return l.watchers.Watch(ctx, revocationTable)
}

// Revocations reads everybody who is out. A record that cannot be read is an error, and the last
// ones that could stay in force: nobody is let in because a disk is bad.
func (l *Ledger) Revocations(ctx context.Context) (*Revocations, error) {
	l.reading.Lock()
	defer l.reading.Unlock()
	set, err := l.readRevocations(ctx)
	if err == nil && l.wentBack(set) {
		set, err = l.readRevocations(ctx)
	}
	if err != nil {
		return nil, err
	}
	l.kept = set.kept
	l.revoked.Store(set)
	return &set.Revocations, nil
}

// wentBack has what is in force stay so when the records are older than they were: whoever keeps
// them was restored from a snapshot while we run. It says whether they are. The caller holds
// reading.
func (l *Ledger) wentBack(set *revokedSet) bool {
	if set.kept >= l.kept {
		return false
	}
	taken := 0
	for _, x := range l.revoked.Load().List {
		if x.Epoch <= set.kept || set.Has(x.Kind, x.Name) {
			continue
		}
		l.unkept.add(x)
		taken++
		l.audit(audit.Event{Action: audit.WorkloadRevoke, Actor: "ashored", Target: x.Name,
			Reason:  because("the store was restored to before this revocation, which stays in force", x.Reason),
			Details: map[string]string{"kind": string(x.Kind), "by": x.By, "at": x.At.UTC().Format(time.RFC3339)}})
	}
	if taken > 0 {
		l.lost(loss{Kind: lossOlder, Copy: true, Taken: taken})
	}
	l.rouse()
	return taken > 0
}

// readRevocations is everybody who is out: by the records, and by what these could not take.
func (l *Ledger) readRevocations(ctx context.Context) (*revokedSet, error) {
	more := l.unkept.list() // before the records are read: what they take meanwhile stands twice, not nowhere
	records, err := l.records.List(ctx, revocationTable)
	if err != nil {
		return nil, fmt.Errorf("list revocations: %w", err)
	}
	return newRevokedSet(records, more, l.now().Add(-l.outlive))
}

// revokedSet is Revocations for questions about one certificate.
type revokedSet struct {
	Revocations
	kept                  uint64          // the epoch of the records
	identity, certificate map[string]bool // certificate: also ended ones
}

// newRevokedSet reads records; more are revocations beside them. Certificates that ended before a
// time matter no more.
func newRevokedSet(records []record.Record, more []Revocation, ended time.Time) (*revokedSet, error) {
	s := &revokedSet{Revocations: Revocations{has: map[thing]bool{}}, identity: map[string]bool{},
		certificate: map[string]bool{}}
	for _, r := range records {
		if r.Name == epochName {
			var e epochRecord
			if err := decodeRecord(r.Value, &e); err != nil {
				return nil, fmt.Errorf("epoch of revocations: %w", err)
			}
			s.Epoch, s.kept = e.Epoch, e.Epoch
			continue
		}
		x, err := decodeRevocation(r.Value)
		if err != nil {
			return nil, err
		}
		s.add(x, ended)
	}
	for _, x := range more {
		if !s.Has(x.Kind, x.Name) {
			s.add(x, ended)
			s.Epoch = max(s.Epoch, x.Epoch)
		}
	}
	slices.SortFunc(s.List, func(a, b Revocation) int {
		return cmp.Or(a.At.Compare(b.At),
			cmp.Compare(a.Name, b.Name))
	})
	slices.Sort(s.Identities)
	slices.Sort(s.Certificates)
	s.Certificates = slices.Compact(s.Certificates)
	return s, nil
}

func (s *revokedSet) add(x Revocation, ended time.Time) {
	s.List = append(s.List, x)
	s.has[thing{x.Kind, x.Name}] = true
	if x.Kind == RevokeIdentity {
		s.identity[x.Name] = true
		s.Identities = append(s.Identities, x.Name)
	}
	for _, c := range x.Certificates {
		s.certificate[c.SHA256] = true
		if c.NotAfter.After(ended) {
			s.Certificates = append(s.Certificates, c.SHA256)
		}
	}
}

// Has says that something is out, also when the records do not have it yet.
func (r *Revocations) Has(kind RevocationKind, name string) bool { return r.has[thing{kind, name}] }

// identities is Identities as a set.
func (r *Revocations) identities() map[string]bool {
	out := make(map[string]bool, len(r.Identities))
	for _, id := range r.Identities {
		out[id] = true
	}
	return out
}

// sweepRevocations forgets those of certificates that can neither be shown nor renewed with any
// more, and that no connection stands on.
func (l *Ledger) sweepRevocations(ctx context.Context, now time.Time) error {
	records, err := l.records.List(ctx, revocationTable)
	if err != nil {
		return err
	}
	var errs []error
	for _, r := range records {
		if r.Name == epochName {
			continue
		}
		x, err := decodeRevocation(r.Value)
		if err != nil || x.Until.IsZero() || now.Before(x.Until.Add(max(l.grace+lateClock, l.outlive))) {
			errs = append(errs, err)
			continue
		}
		errs = append(errs, l.forget(ctx, record.Write{Key: r.Key, Version: r.Version}))
	}
	return errors.Join(errs...)
}
