package ca

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"slices"
	"time"

	"google.golang.org/grpc/codes"

	"github.com/ashore-mesh/ashore/internal/record"
	"github.com/ashore-mesh/ashore/internal/spiffe"
)

// maxKeyNamed is how many workloads of one service account may differ by their keys alone. It is
// bounded because a holder of the account's token can create new keys at any time.
const maxKeyNamed = 20_000

// joinTime is how long a machine that joined has its name although it is not connected yet.
const joinTime = 15 * time.Second

// issued is a certificate that is about to be handed out.
type issued struct {
	workload string
	proof    *Proof
	key      KeyHash
	leaf     *x509.Certificate
	// replace says that the caller means to take the place of a workload of its name.
	replace bool
	// root and bundle are the IDs of the root that the leaf leads to, and of the bundle that comes
	// with it.
	root, bundle string
	now          time.Time
	// replaced is the hash of the key that renews no more because of it, or empty. enter sets it.
	replaced string
}

// Replacement says that a machine with another key joined under the name of a workload.
type Replacement struct {
	// Former are the certificates from before, as far as they are known.
	Former []Leaf
	// Text says what happened, for the machine that has one of them.
	Text string
}

// enter writes down that a workload gets a certificate, and takes its join token in the same
// commit. Nothing may be handed out before. Each workload has a record of its own, so that many can
// renew at once. Errors: *Refusal, or why it cannot be written.
func (l *Ledger) enter(ctx context.Context, c *issued) error {
	if err := l.retry(func() error { return l.tryEnter(ctx, c) }); err != nil {
		return err
	}
	// A revocation of an identity, and one that is pending, changes no workload: look again.
	return l.refuseRevoked(ctx, c.proof, c.workload)
}

// tellReplaced tells of the machines whose name another one took since a mark, at whichever
// replica, and returns the next mark. Since nil there is nothing to tell.
func (l *Ledger) tellReplaced(ctx context.Context, since record.Mark) record.Mark {
	list, now, err := l.records.Changes(ctx, workloadTable, since)
	if err != nil {
		if ctx.Err() == nil {
			l.log.Warn("cannot read which workloads joined; the next change tries again", "error", err)
		}
		return since
	}
	for _, r := range list {
		w, err := decodeWorkload(r.Name, r.Value)
		justReplaced := !w.Replaced.IsZero() && w.Replaced.Equal(w.Renewed)
		if since == nil || r.Version == "" || err != nil || !justReplaced || len(w.Leaves) == 0 {
			continue
		}
		former := w.Leaves[:len(w.Leaves)-1] // the last one is that of the new machine
		l.replaced(Replacement{Former: former, Text: replacedText(w.Name, w.Replaced, w.From)})
	}
	return now
}

func (l *Ledger) tryEnter(ctx context.Context, c *issued) error {
	w, version, err := l.workload(ctx, c.workload)
	if err != nil {
		return err
	}
	// Read after the workload: a revocation that comes later changes its record, and the commit
	// conflicts.
	if err := l.refuseRevoked(ctx, c.proof, c.workload); err != nil {
		return err
	}
	known, former := version != "", w.Key
	var writes []record.Write
	switch c.proof.How {
	case byCertificate:
		if err := w.superseded(known, c.proof.Leaf); err != nil {
			return err
		}
		w = w.renew(c, known)
	case byToken:
		if writes, err = l.spend(ctx, c, w, known); err != nil {
			return err
		}
		w = w.join(c)
	default:
		w = w.join(c)
	}
	if account, ok := keyNamedAccount(c.workload); ok && !known && (*l.keyNamed.Load())[account] >= maxKeyNamed {
		return &Refusal{Code: codes.ResourceExhausted,
			Public: "too many workloads of this service account hold certificates", Reason: "account full",
			Err: fmt.Errorf("service account %s has %d workloads, and asks for one more", account, maxKeyNamed)}
	}
	if c.replaced = ""; c.proof.Leaf == nil && former != w.Key {
		c.replaced = former
	}
	w.Name = c.workload
	w.prune(c.now, l.outlive)
	if len(w.Leaves) >= maxLeaves {
		return &Refusal{Code: codes.ResourceExhausted,
			Public: "too many certificates of this workload are valid at once, or ended a short time ago",
			Reason: "too many certificates",
			Err: fmt.Errorf("workload %s has %d certificates by which connections may be open, and asks for more",
				c.workload, len(w.Leaves))}
	}
	w.Leaves = append(w.Leaves, leafOf(c.leaf, c.root))
	w.Offered, w.Renewed = c.bundle, c.now
	write, err := workloadWrite(w, version)
	if err != nil {
		return err
	}
	return l.records.Commit(ctx, append(writes, write)...)
}

// spend says whether a join token makes a workload of a name for a key, and returns the write that
// uses it up. The same key and workload may use it again until it ends, for an answer may be lost.
// Errors: *Refusal, or why it cannot be told now.
func (l *Ledger) spend(ctx context.Context, c *issued, w Workload, known bool) ([]record.Write, error) {
	t, version, err := l.checkToken(ctx, c.proof.token, c.now)
	if err != nil {
		return nil, err
	}
	used := t.Key != ""
	switch {
	case used && (t.Key != c.key.String() || t.Workload != c.workload):
		return nil, refuseToken("token used", fmt.Errorf("join token %s was used by %s at %s from %s, and comes for "+
			"%s with key %s",
			t.ID, t.Workload, t.Used.Format(time.RFC3339), t.From, c.workload, c.key))
	case known && w.Group != "" && w.Group != t.Group && l.valid(w, c.now.Add(-l.grace)):
		return nil, &Refusal{Code: codes.PermissionDenied, Reason: "name of another group",
			Public: "a workload of this name has joined another group: choose another name, or revoke the certificates " +
				"of that one by their serial numbers first",
			Err: fmt.Errorf("workload %s joined group %q, and a token of group %q comes for it",
				c.workload, w.Group, t.Group)}
	case used && known && !w.holds(c.key):
		return nil, refuseToken("token used", fmt.Errorf("join token %s was used at %s, and workload %s has joined "+
			"anew or renewed since",
			t.ID, t.Used.Format(time.RFC3339), c.workload))
	case used:
		return nil, nil
	}
	if err := l.refuseTaken(w, known, c); err != nil {
		return nil, err
	}
	t.Key, t.Workload, t.Used, t.From = c.key.String(), c.workload, c.now, c.proof.from.String()
	write, err := tokenWrite(t, version)
	return []record.Write{write}, err
}

// refuseTaken refuses the name of a workload that has a valid certificate and is connected, or has
// joined a moment ago. A caller that has its key is that workload.
func (l *Ledger) refuseTaken(w Workload, known bool, c *issued) error {
	shown := c.proof.shown
	if !known || c.replace || w.holds(c.key) || shown != nil && w.holds(*shown) || !l.valid(w, c.now) {
		return nil
	}
	where := l.present(w)
	if where == "" && c.now.Sub(w.Joined).Abs() < joinTime {
		where = fmt.Sprintf("a machine joined under this name from %s at %s", w.From,
			w.Joined.UTC().Format(time.RFC3339))
	}
	if where == "" {
		return nil
	}
	return &Refusal{Code: codes.AlreadyExists, Reason: "name in use",
		Public: fmt.Sprintf("the name %s is in use: %s; give this machine another name, or let it take the place of "+
			"that one when it is the same machine, installed anew", c.workload, where),
		Err: fmt.Errorf("%s comes for the name %s, and %s", c.proof.Caller, c.workload, where)}
}

// valid says that a workload has a certificate that has not ended at a time and is not revoked.
func (l *Ledger) valid(w Workload, at time.Time) bool {
	revoked := l.Revocations()
	return slices.ContainsFunc(w.Leaves, func(leaf Leaf) bool {
		return leaf.NotAfter.After(at) && !revoked.revoked(w.Name, leaf)
	})
}

// reasonReplaced is why the holder of a superseded key is refused.
const reasonReplaced = "replaced"

// superseded refuses a certificate whose key the workload has replaced since. An index that is
// older than the certificate, as one from a backup, says nothing about it. Errors: *Refusal.
func (w *Workload) superseded(known bool, leaf *x509.Certificate) error {
	issued := leaf.NotBefore.Add(backdate)
	if !known || issued.After(w.Renewed) || w.holds(KeyHashOf(leaf)) {
		return nil
	}
	text := replacedText(w.Name, w.Replaced, w.From)
	if w.Replaced.Before(issued) {
		text = fmt.Sprintf("another machine has a copy of the identity of %s and renewed its certificate at %s; join "+
			"again with --name NAME",
			w.Name, w.Renewed.UTC().Format(time.RFC3339))
	}
	return &Refusal{Code: codes.Unauthenticated, Public: text, Reason: reasonReplaced, Err: errors.New(text)}
}

// replacedText is the answer to the holder of a key that was replaced by a new join.
func replacedText(workload string, at time.Time, from string) string {
	return fmt.Sprintf("another machine joined under the name %s at %s from %s and took its place; "+
		"join again with --name NAME, or with --replace to take the place back",
		workload, at.UTC().Format(time.RFC3339), from)
}

// Holds returns the index's entry of the workload that a verified certificate was issued to; an
// empty one when there is none. Errors: *Refusal when the certificate was superseded or is revoked.
func (l *Ledger) Holds(ctx context.Context, leaf *x509.Certificate) (Workload, error) {
	id, err := spiffe.Of(leaf)
	if err != nil {
		return Workload{}, refuseCertificate("no identity", err)
	}
	name := indexName(leaf, id)
	w, version, err := l.workload(ctx, name)
	if err != nil {
		return w, err
	}
	w.Name = name
	if err := w.superseded(version != "", leaf); err != nil {
		return w, err
	}
	return w, l.refuseRevoked(ctx, &Proof{ID: id, How: byCertificate, Leaf: leaf}, name)
}

// refuseRevoked refuses when the identity, the workload or the certificate of a caller is revoked,
// by what the store has at this moment. The caller is answered as for any other bad proof of its
// kind. Errors: *Refusal, or why it cannot be told now.
func (l *Ledger) refuseRevoked(ctx context.Context, p *Proof, workload string) error {
	keys := []record.Key{revocationKey(RevokeIdentity, p.ID.String()), revocationKey(RevokeWorkload, workload)}
	if p.Leaf != nil {
		keys = append(keys, revocationKey(RevokeSerial, serialText(p.Leaf)))
	}
	for _, key := range keys {
		x, _, _, err := l.revocation(ctx, key)
		switch {
		case err != nil:
			return err
		case !x.Revoked:
			continue
		}
		text := fmt.Sprintf("%s %s was revoked at %s by %s", x.Kind, x.Name, x.At.Format(time.RFC3339), x.By)
		why := errors.New(because(text, x.Reason))
		switch p.How {
		case byCertificate:
			return refuseCertificate(reasonRevoked, why)
		case byJWT:
			return &Refusal{Code: codes.PermissionDenied, Public: publicJWT, Reason: reasonRevoked, Err: why}
		}
		return refuseToken(reasonRevoked, why)
	}
	return nil
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
