package ca

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"time"

	"google.golang.org/grpc/codes"

	"github.com/ashore-mesh/ashore/internal/record"
	"github.com/ashore-mesh/ashore/internal/spiffe"
)

// maxNewKeys is how many workloads of one service account may join that differ by their keys alone,
// and newKeyEvery is how long it takes until one more may join. A holder of the account's token can
// create new keys at any time.
const maxNewKeys, newKeyEvery = 20_000, 30 * time.Second

// issuance is a certificate that is about to be handed out.
type issuance struct {
	workload string
	proof    *Proof
	ask      *ask
	leaf     *x509.Certificate
	root     string // the ID of the leaf's root
	now      time.Time
	// replaced is the hash of the key that cannot renew any more because of it. enter sets it; it may
	// be empty.
	replaced string
}

// enter adds a certificate to the index, and uses up the join token in the same commit. Hand out
// nothing before. Each workload has a record of its own, so that many can renew at once. Errors:
// *Refusal, or why it cannot be written.
func (l *Ledger) enter(ctx context.Context, c *issuance) error {
	return l.retry(func() error { return l.tryEnter(ctx, c) })
}

func (l *Ledger) tryEnter(ctx context.Context, c *issuance) error {
	w, version, err := l.workloads.get(ctx, c.workload)
	if err != nil {
		return err
	}
	// Read after the workload: a later revocation changes its record, and the commit conflicts.
	if err := l.refuseRevoked(ctx, c.proof, c.workload); err != nil {
		return err
	}
	former := w.Key // empty: the index does not have the workload
	var writes []record.Write
	if c.proof.How == byCertificate {
		if err := w.superseded(c.proof.Leaf); err != nil {
			return err
		}
		w = w.renew(c)
	} else {
		if c.proof.How == byToken {
			if writes, err = l.spend(ctx, c, w); err != nil {
				return err
			}
		}
		w = w.join(c)
		if c.replaced = ""; former != w.Key {
			c.replaced = former
		}
	}
	w.Name, w.Identity = c.workload, c.proof.ID.String() // the mesh may have a new trust domain
	w.prune(c.now, l.outlive)
	if account, ok := keyNamedAccount(c.workload); ok && former == "" {
		if allowed, _ := l.newKeys.Allow(account, c.now); !allowed {
			return busy("too many workloads of this service account join with new keys; wait", "too many keys")
		}
	}
	if len(w.Leaves) >= maxLeaves {
		return &Refusal{Code: codes.ResourceExhausted, Reason: "too many certificates",
			Public: "too many certificates of this workload are valid at once, or expired a short time ago",
			Err: fmt.Errorf("workload %s has %d certificates by which connections may be open, and asks for more",
				c.workload, len(w.Leaves))}
	}
	w.Leaves = append(w.Leaves, leafOf(c.leaf, c.root))
	w.Renewed = c.now
	write, err := l.workloads.replace(w.Name, w, version)
	if err != nil {
		return err
	}
	return l.config.Records.Commit(ctx, append(writes, write)...)
}

// spend decides whether a join token may be used for a key and a workload, and returns the write
// that uses it up. The same key and workload may use it again until it expires, because an answer
// may be lost. Errors: *Refusal, or the store cannot be read.
func (l *Ledger) spend(ctx context.Context, c *issuance, w Workload) ([]record.Write, error) {
	t, version, err := l.checkToken(ctx, c.proof.token, c.now)
	if err != nil {
		return nil, err
	}
	key, used := c.ask.KeyHash, t.Key != ""
	switch {
	case used && (t.Key != key || t.Workload != c.workload):
		return nil, refusal(byToken, "token used",
			"join token %s was used by %s at %s from %s, and comes for %s with key %s",
			t.ID, t.Workload, t.Used.Format(time.RFC3339), t.From, c.workload, key)
	case w.Group != "" && w.Group != t.Group && !w.holds(c.proof.shown) && l.canRenew(w, c.now):
		return nil, &Refusal{Code: codes.PermissionDenied, Reason: "name of another group",
			Public: "a workload of this name has joined another group: choose another name, or join on the machine " +
				"that still has the identity of that workload",
			Err: fmt.Errorf("workload %s joined group %q, and a token of group %q comes for it",
				c.workload, w.Group, t.Group)}
	case used && w.Key != "" && !w.holds(key):
		return nil, refusal(byToken, "token used", "join token %s was used at %s, and workload %s has joined again or "+
			"renewed since", t.ID, t.Used.Format(time.RFC3339), c.workload)
	case used:
		return nil, nil
	}
	t.Key, t.Workload, t.Used, t.From = key, c.workload, c.now, c.proof.from.String()
	write, err := l.tokens.replace(t.ID, t, version)
	return []record.Write{write}, err
}

// canRenew reports whether a workload is not revoked and has a certificate that it can renew.
func (l *Ledger) canRenew(w Workload, now time.Time) bool {
	return !l.Revocations().Has(w.Name) && w.Expires().Add(l.config.Grace).After(now)
}

// reasonReplaced is why the holder of a superseded key is refused.
const reasonReplaced = "replaced"

// superseded refuses a certificate whose key the workload has replaced since. An index that is
// older than the certificate, as one from a backup, does not refuse it. Errors: *Refusal.
func (w *Workload) superseded(leaf *x509.Certificate) error {
	issued := leaf.NotBefore.Add(backdate)
	if w.Key == "" || issued.After(w.Renewed) || w.holds(keyHash(leaf)) {
		return nil
	}
	text := replacedText(w)
	if w.Replaced.Before(issued) {
		text = fmt.Sprintf("another machine has a copy of the identity of %s and renewed its certificate at %s; join "+
			"again with --name NAME", w.Name, w.Renewed.UTC().Format(time.RFC3339))
	}
	return &Refusal{Code: codes.Unauthenticated, Public: text, Reason: reasonReplaced, Err: errors.New(text)}
}

// replacedText is the answer to the holder of a key that was replaced by a new join.
func replacedText(w *Workload) string {
	return fmt.Sprintf("another machine joined under the name %s at %s from %s and took its place; "+
		"join again with --name NAME, or with the same name to take the place back",
		w.Name, w.Replaced.UTC().Format(time.RFC3339), w.From)
}

// reportReplaced reports the machines whose names others took since a mark, on any replica, and
// returns the next mark. Since nil it reports none.
func (l *Ledger) reportReplaced(ctx context.Context, since record.Mark) record.Mark {
	list, now, err := l.config.Records.Changes(ctx, l.workloads.name, since)
	if err != nil {
		if ctx.Err() == nil {
			l.config.Log.Warn("cannot read which workloads joined; the next change tries again", "error", err)
		}
		return since
	}
	for _, r := range list {
		if since == nil || r.Version == "" {
			continue
		}
		w, err := l.workloads.decode(r)
		if n := len(w.Leaves); err == nil && n > 0 && !w.Replaced.IsZero() && w.Replaced.Equal(w.Renewed) {
			// The last certificate is that of the new machine.
			l.config.Replaced(w.Leaves[:n-1], replacedText(&w))
		}
	}
	return now
}

// Holds returns the index's entry of the workload that a verified certificate was issued to; only
// its name if there is none. Errors: *Refusal when the certificate was superseded or is revoked.
func (l *Ledger) Holds(ctx context.Context, leaf *x509.Certificate) (Workload, error) {
	id, err := spiffe.Of(leaf)
	if err != nil {
		return Workload{}, refusal(byCertificate, "no identity", "%w", err)
	}
	name := indexName(leaf, id)
	w, _, err := l.workloads.get(ctx, name)
	if err != nil {
		return w, err
	}
	w.Name = name
	if err := w.superseded(leaf); err != nil {
		return w, err
	}
	return w, l.refuseRevoked(ctx, &Proof{ID: id, How: byCertificate}, name)
}

// refuseRevoked refuses a caller whose identity or workload is revoked in the store now. The answer
// is that for any other bad proof of its kind. Errors: *Refusal, or the store cannot be read.
func (l *Ledger) refuseRevoked(ctx context.Context, p *Proof, workload string) error {
	for _, subject := range []string{p.ID.String(), workload} {
		x, _, _, err := l.revocation(ctx, subject)
		switch {
		case err != nil:
			return err
		case x.Revoked:
			text := fmt.Sprintf("%s was revoked at %s by %s", subject, x.At.Format(time.RFC3339), x.By)
			return refusal(p.How, reasonRevoked, "%s", because(text, x.Reason))
		}
	}
	return nil
}
