package ca

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"google.golang.org/grpc/codes"

	"github.com/ashore-mesh/ashore/internal/record"
)

// Replacement says that another machine, or the same one with another key, joined under the name of
// a workload.
type Replacement struct {
	// Workload is its "namespace/name".
	Workload string
	// Former are the certificates of the keys from before, as far as they are known.
	Former []Leaf
	// Key is the hash of the key from before, in hexadecimal digits, where another replica let the
	// machine join; else empty.
	Key string
	// Text says what happened, for who has one of those keys.
	Text string
}

// replaced is what became of a key that renews no more.
type replaced struct {
	// At is when another machine joined, and From its address.
	At   time.Time `json:"at"`
	From string    `json:"from"`
	// Until is when nobody can come back with the key any more.
	Until time.Time `json:"until"`
}

// reasonReplaced is why the holder of such a key is refused, and reasonUnknown why one is of whom
// nothing is known.
const reasonReplaced, reasonUnknown = "replaced", "key unknown"

// text is the answer to the holder of the key.
func (r *replaced) text(workload string) string {
	return fmt.Sprintf("another machine joined under the name %s at %s from %s and took its place; "+
		"join again with --name NAME, or with --replace to take the place back", workload, r.At.UTC().Format(time.RFC3339), r.From)
}

// refuse refuses who has the key.
func (r *replaced) refuse(workload string) *Refusal {
	text := r.text(workload)
	return &Refusal{Code: codes.Unauthenticated, Public: text, Reason: reasonReplaced, Err: errors.New(text)}
}

// publicUnknown is what the holder of a certificate of this mesh is told whose key nobody knows
// here.
const publicUnknown = "the certificate's key is in no record here: this control plane does not share its records with the one where the workload joined, or the key was replaced, by a copy of this identity on another machine or by a join long ago; join again with a new token"

// unknown refuses a key that is not the one of a workload, and says what became of it as far as
// that is known. behind is what it was before the key was looked up.
func (l *Ledger) unknown(ctx context.Context, behind error, with KeyHash) error {
	k, version, err := l.holder(ctx, with.String())
	switch {
	case err != nil:
		return err
	case version != "" && k.Replaced != nil:
		return k.Replaced.refuse(k.Workload)
	}
	return l.unsure(behind, &Refusal{Code: codes.Unauthenticated, Public: publicUnknown, Reason: reasonUnknown,
		Err: fmt.Errorf("key %s is not, or no longer, the one of a workload: it was replaced long ago, or the certificate is not from a join here", with)})
}

// explained is err, with what became of a key where that is why.
func (l *Ledger) explained(ctx context.Context, behind error, with KeyHash, err error) error {
	if r, ok := errors.AsType[*Refusal](err); ok && r.Reason == reasonUnknown {
		return l.unknown(ctx, behind, with)
	}
	return err
}

// goneKeys is what is kept of the keys of a workload that another machine takes the place of.
func (l *Ledger) goneKeys(c *issued, before Workload) ([]byte, error) {
	return json.Marshal(keyRecord{Format: 1, Workload: c.workload, Replaced: c.replacement(before, l.grace)})
}

func (c *issued) replacement(before Workload, grace time.Duration) *replaced {
	return &replaced{At: c.now, From: c.proof.from.String(), Until: later(before.Expires(), c.now).Add(grace)}
}

// tellReplaced tells who wants to know that the keys from before renew no more.
func (l *Ledger) tellReplaced(c *issued) {
	if len(c.former) == 0 {
		return
	}
	r := replaced{At: c.now, From: c.proof.from.String()}
	l.replaced(Replacement{Workload: c.workload, Former: c.former, Text: r.text(c.workload)})
}

// heed tells of the keys that were replaced since it was called last, at whichever replica. Where
// the records do not tell what has changed there is no other.
func (l *Ledger) heed(ctx context.Context) {
	if l.changes == nil {
		return
	}
	list, now, err := l.changes.Changes(ctx, keyTable, l.heeded)
	if err != nil {
		if ctx.Err() == nil {
			l.log.Warn("whose place was taken cannot be read; it is tried again with the next change", "error", err)
		}
		return
	}
	first := l.heeded == nil
	l.heeded = now
	for _, r := range list {
		var k keyRecord
		if first || r.Version == "" || decodeRecord(r.Value, &k) != nil || k.Replaced == nil {
			continue // who connects is looked up, and what is damaged is told of then
		}
		l.replaced(Replacement{Workload: k.Workload, Key: r.Name, Text: k.Replaced.text(k.Workload)})
	}
}

// sweepReplaced forgets keys that were replaced and can come back no more.
func (l *Ledger) sweepReplaced(ctx context.Context, now time.Time) error {
	records, err := l.records.List(ctx, keyTable)
	if err != nil {
		return err
	}
	var errs []error
	for _, r := range records {
		var k keyRecord
		if err := decodeRecord(r.Value, &k); err != nil || k.Replaced == nil || now.Before(k.Replaced.Until) {
			errs = append(errs, err)
			continue
		}
		errs = append(errs, l.forget(ctx, record.Write{Key: r.Key, Version: r.Version}))
	}
	return errors.Join(errs...)
}
