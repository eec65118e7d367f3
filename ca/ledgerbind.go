package ca

import (
	"context"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"google.golang.org/grpc/codes"

	"github.com/ashore-mesh/ashore/internal/record"
	"github.com/ashore-mesh/ashore/internal/spiffe"
)

// Workloads stand in workloadTable by name; keyTable says which workload a key is of.
const workloadTable, keyTable = "workload", "workloadkey"

// keyRecord says which workload a key is of.
type keyRecord struct {
	Format   int    `json:"v"`
	Workload string `json:"workload"`
	// Replaced says that it was; nil: it is.
	Replaced *replaced `json:"replaced,omitempty"`
}

func (k *keyRecord) format() int { return k.Format }

// issued is a certificate that is about to be handed out.
type issued struct {
	workload string
	proof    *Proof
	key      KeyHash
	leaf     *x509.Certificate
	// root and bundle are the IDs of the root that the leaf leads to, and of the bundle that comes
	// with it.
	root, bundle string
	now          time.Time
	// replaced is the hash of the key that renews no more because of it, or empty, and former are
	// the certificates that the workload had then, when another machine may have them. enter sets
	// them.
	replaced string
	former   []Leaf
}

// enter writes down that a workload gets a certificate. Nothing may be handed out before it has.
// Each workload has a record of its own, so that many can renew at once. Errors: *Refusal, or why
// it cannot be written.
func (l *Ledger) enter(ctx context.Context, c *issued) error {
	seen := c.proof.seen
	err := l.retry(func() error {
		if seen == nil {
			w, version, err := l.workload(ctx, c.workload)
			if err != nil {
				return err
			}
			seen = &held{w, version}
		}
		defer func() { seen = nil }()
		return l.tryEnter(ctx, c, seen.workload, seen.version)
	})
	if err != nil {
		return err
	}
	l.tellReplaced(c)
	// A revocation that the records did not take has changed nothing: look again.
	for _, key := range revocableKeys(*c) {
		if x, ok := l.unkept.get(key); ok {
			return refuseBy(c.proof, x)
		}
	}
	// An identity has no record of its own that a revocation at this moment would have changed:
	// look again.
	return l.refuseNamed(ctx, c.proof, revocationKey(RevokeIdentity, c.proof.ID.String()))
}

// tryEnter is enter for a workload as it was read at a version.
func (l *Ledger) tryEnter(ctx context.Context, c *issued, w Workload, version string) error {
	// Read after the workload: a revocation that comes later changes its record, and the commit
	// finds out.
	if err := l.refuseRevoked(ctx, *c); err != nil {
		return err
	}
	before := w
	c.replaced, c.former = "", nil
	if c.proof.Leaf == nil {
		if err := l.mayReplace(w, version != "", *c); err != nil {
			return err
		}
		w = w.replace(c.proof, c.key, c.now)
		if before.Key != w.Key {
			c.replaced = before.Key
			if c.proof.How == tokenAttestor { // by a JWT it is the same one, that makes a new key each time
				c.former = before.Leaves
			}
		}
	} else {
		with := KeyHashOf(c.proof.Leaf)
		if err := w.mayRenew(version != "", c.proof.ID, with); err != nil {
			return l.explained(ctx, l.behind(), with, err)
		}
		w = w.renew(c.proof, with, c.key)
	}
	w.prune(c.now, l.outlive)
	if len(w.Leaves) >= maxLeaves || len(w.Ended) > maxEnded {
		return &Refusal{Code: codes.ResourceExhausted,
			Public: "too many certificates of this workload are valid at once, or ended a short time ago", Reason: "too many certificates",
			Err: fmt.Errorf("%d certificates of workload %s are valid, by %d that have ended peers may still hold connections, and it asks for more", len(w.Leaves), c.workload, len(w.Ended))}
	}
	w.Leaves = append(w.Leaves, leafOf(c.leaf, c.root))
	w.Offered, w.Renewed = c.bundle, c.now
	writes, err := l.writesOf(ctx, c, before, w, version)
	if err != nil {
		return err
	}
	return l.records.Commit(ctx, writes...)
}

// writesOf turns a change of a workload into writes: its own record, which keys are its, and which
// were.
func (l *Ledger) writesOf(ctx context.Context, c *issued, before, after Workload, version string) ([]record.Write,
	error) {
	name := c.workload
	value, err := json.Marshal(after)
	if err != nil {
		return nil, err
	}
	var gone []byte // nothing: who renews has both keys
	if len(c.former) > 0 {
		if gone, err = l.goneKeys(c, before); err != nil {
			return nil, err
		}
	}
	writes := []record.Write{{Key: record.Key{Table: workloadTable, Name: name}, Value: value, Version: version}}
	if after.Key != before.Key {
		w, err := l.claimKey(ctx, name, after.Key)
		if err != nil {
			return nil, err
		}
		writes = append(writes, w)
	}
	for _, old := range []string{before.Key, before.Previous} {
		if old != "" && old != after.Key && old != after.Previous &&
			!slices.ContainsFunc(writes, func(w record.Write) bool { return w.Name == old }) {
			writes = append(writes, record.Write{Key: record.Key{Table: keyTable, Name: old}, Value: gone,
				Version: record.Any})
		}
	}
	return writes, nil
}

// claimKey is the write that makes a key a workload's. Errors: *Refusal when it is another one's.
func (l *Ledger) claimKey(ctx context.Context, name, key string) (record.Write, error) {
	holder, version, err := l.holder(ctx, key)
	if err != nil {
		return record.Write{}, err
	}
	if version != "" && holder.Workload != name {
		return record.Write{}, &Refusal{Code: codes.PermissionDenied,
			Public: "the key is in use by another workload: make a new one", Reason: "key of another workload", Final: true,
			Err: fmt.Errorf("key %s is that of workload %s, and comes for %s", key, holder.Workload, name)}
	}
	value, err := json.Marshal(keyRecord{Format: 1, Workload: name})
	if err != nil {
		return record.Write{}, err
	}
	return record.Write{Key: record.Key{Table: keyTable, Name: key}, Value: value, Version: version}, nil
}

// holder is the workload that a key is of, or was; version is empty when it is of none.
func (l *Ledger) holder(ctx context.Context, key string) (k keyRecord, version string, err error) {
	r, err := l.records.Get(ctx, record.Key{Table: keyTable, Name: key})
	if err != nil || r.Version == "" {
		return k, "", err
	}
	if err := decodeRecord(r.Value, &k); err != nil {
		return k, "", fmt.Errorf("key %s: %w", key, err)
	}
	return k, r.Version, nil
}

// workload reads one; version is empty when there is none.
func (l *Ledger) workload(ctx context.Context, name string) (w Workload, version string, err error) {
	r, err := l.records.Get(ctx, record.Key{Table: workloadTable, Name: name})
	if err != nil || r.Version == "" {
		return w, "", err
	}
	w, err = decodeWorkload(name, r.Value)
	return w, r.Version, err
}

// mayRenew says why a key does not renew for an identity. Errors: *Refusal.
func (w *Workload) mayRenew(known bool, id spiffe.ID, with KeyHash) error {
	switch {
	case !known || !w.holds(with):
		return refuseCertificate(reasonUnknown, fmt.Errorf("key %s is not, or no longer, the one of a workload", with))
	case !w.isOf(id):
		return refuseCertificate("other workload",
			fmt.Errorf("key %s is that of workload %s with identity %s, and comes with a certificate for %s", with,
				w.Name, w.Identity, id))
	case w.Revoked:
		return refuseCertificate("revoked", fmt.Errorf("workload %s is revoked", w.Name))
	}
	return nil
}

// refuseRevoked says that the identity, the workload or the certificate that a call was proven by
// is revoked. It asks the records, not what was last read of them. Errors: *Refusal.
func (l *Ledger) refuseRevoked(ctx context.Context, c issued) error {
	for _, key := range revocableKeys(c) {
		if err := l.refuseNamed(ctx, c.proof, key); err != nil {
			return err
		}
	}
	return nil
}

// revocableKeys are where a revocation would stand of what a call was proven by.
func revocableKeys(c issued) []record.Key {
	names := []record.Key{revocationKey(RevokeIdentity, c.proof.ID.String()), revocationKey(RevokeWorkload, c.workload)}
	if c.proof.Leaf != nil {
		names = append(names, revocationKey(RevokeSerial, serialText(c.proof.Leaf)))
	}
	return names
}

// refuseNamed refuses when there is a revocation by a name. Errors: *Refusal, or why it cannot be
// told now.
func (l *Ledger) refuseNamed(ctx context.Context, p *Proof, key record.Key) error {
	if x, ok := l.unkept.get(key); ok {
		return refuseBy(p, x)
	}
	r, err := l.records.Get(ctx, key)
	if err != nil || r.Version == "" {
		return err
	}
	x, err := decodeRevocation(r.Value)
	if err != nil {
		return err
	}
	return refuseBy(p, x)
}

// refuseBy is the refusal by a revocation.
func refuseBy(p *Proof, x Revocation) *Refusal {
	return refuseRevoked(p, errors.New(because(fmt.Sprintf("%s %s was revoked at %s by %s", x.Kind, x.Name,
		x.At.Format(time.RFC3339), x.By), x.Reason)))
}

// refuseRevoked says it to the caller in the words that any other bad proof of his kind gets.
func refuseRevoked(p *Proof, err error) *Refusal {
	switch {
	case p.Leaf != nil:
		return refuseCertificate("revoked", err)
	case p.How == jwtAttestor:
		return &Refusal{Code: codes.PermissionDenied, Public: publicJWT, Reason: "revoked", Err: err, Final: true}
	}
	return refuseToken("revoked", err)
}

// leafOf is what is kept of a certificate.
func leafOf(c *x509.Certificate, root string) Leaf {
	return Leaf{Serial: serialText(c), SHA256: Fingerprint(c), NotAfter: c.NotAfter, Root: root}
}

// held is a workload as it was read at a version.
type held struct {
	workload Workload
	version  string
}

// Holds returns the workload that a certificate's key is bound to: the latest one, or the one
// before until that is used. Errors: *Refusal when it is of none, of another identity or revoked.
func (l *Ledger) Holds(ctx context.Context, leaf *x509.Certificate) (Workload, error) {
	h, err := l.holds(ctx, leaf)
	return h.workload, err
}

func (l *Ledger) holds(ctx context.Context, leaf *x509.Certificate) (h held, err error) {
	id, err := spiffe.Of(leaf)
	if err != nil {
		return held{}, refuseCertificate("no identity", err)
	}
	key, behind := KeyHashOf(leaf), l.behind()
	k, version, err := l.holder(ctx, key.String())
	if err != nil {
		return held{}, err
	}
	if version != "" {
		if h.workload, h.version, err = l.workload(ctx, k.Workload); err != nil {
			return held{}, err
		}
	}
	if err := h.workload.mayRenew(h.version != "", id, key); err != nil {
		return held{}, l.explained(ctx, behind, key, err)
	}
	c := issued{workload: k.Workload, proof: &Proof{ID: id, How: certificateAttestor, Leaf: leaf}}
	if err := l.refuseRevoked(ctx, c); err != nil {
		return held{}, err
	}
	return h, nil
}
