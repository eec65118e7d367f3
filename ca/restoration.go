package ca

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/ashore-mesh/ashore/internal/audit"
	"github.com/ashore-mesh/ashore/internal/record"
)

// restorationTable is where stands what was taken back in, by the name of its revocation's record:
// a replica may come with that revocation later, which it could not keep when it was made.
const restorationTable = "restoration"

const (
	// restorationKept is for how long that is known.
	restorationKept = 90 * 24 * time.Hour
	// clocksApart is how much the clocks of two replicas may differ where a restoration is to be
	// later than a revocation.
	clocksApart = 10 * time.Second
	// belatedTold is for how long operators are told what became of a revocation that came late.
	belatedTold = 24 * time.Hour
)

// restoration says that something was taken back in.
type restoration struct {
	Format int            `json:"v"`
	Kind   RevocationKind `json:"kind"`
	Name   string         `json:"name"`
	// Reason and By are an operator's.
	Reason string `json:"reason,omitempty"`
	By     string `json:"by,omitempty"`
	// At is when, by the clock of the replica that was asked.
	At time.Time `json:"at"`
}

func (r *restoration) format() int { return r.Format }

// undoes says that it came after a revocation for sure. In doubt the revocation counts: also where
// a clock is ahead.
func (r *restoration) undoes(x Revocation, now time.Time) bool {
	return r.At.After(x.At.Add(clocksApart)) && r.At.Before(now.Add(clocksApart))
}

// mayUndo says that it may have come after a revocation, by clocks that do not agree to the second.
func (r *restoration) mayUndo(x Revocation) bool { return r.At.After(x.At.Add(-clocksApart)) }

// restored is the write that says that something is taken back in.
func (l *Ledger) restored(r RevokeRequest) (record.Write, error) {
	key := revocationKey(r.Kind, r.Name)
	value, err := json.Marshal(restoration{Format: 1, Kind: r.Kind, Name: r.Name, Reason: r.Reason, By: r.By,
		At: l.now().UTC()})
	return record.Write{Key: record.Key{Table: restorationTable, Name: key.Name}, Value: value,
		Version: record.Any}, err
}

// restoration is the last one of what a revocation put out; the zero value: none is known. One that
// cannot be read undoes nothing.
func (l *Ledger) restoration(ctx context.Context, x Revocation) (r restoration, err error) {
	got, err := l.records.Get(ctx, record.Key{Table: restorationTable, Name: revocationKey(x.Kind, x.Name).Name})
	if err != nil || got.Version == "" {
		return r, err
	}
	if err := decodeRecord(got.Value, &r); err != nil { // nobody is let in because of it
		l.log.Error("when a revocation was restored cannot be read: it counts", "kind", x.Kind, "name", x.Name,
			"error", err)
		return restoration{}, nil
	}
	return r, nil
}

// undone forgets a revocation that could not be kept when it was made, for it was restored
// elsewhere since.
func (l *Ledger) undone(ctx context.Context, x Revocation, by restoration) {
	l.log.Warn("a revocation that could not be kept before counts no more: it was restored after it was made",
		"kind", x.Kind, "name", x.Name,
		"revoked", x.At, "restored", by.At, "by", by.By)
	l.audit(audit.Event{Action: audit.WorkloadRestore, Actor: "ashored", Target: x.Name,
		Reason: because(fmt.Sprintf("the revocation of %s could not be kept then, and was restored at %s",
			x.At.UTC().Format(time.RFC3339), by.At.UTC().Format(time.RFC3339)), by.Reason),
		Details: map[string]string{"kind": string(x.Kind), "by": by.By}})
	l.unkept.tell(belated{thing{x.Kind, x.Name}, false, l.now(),
		fmt.Sprintf("the revocation of %s %s that was made here at %s by %s, and could not be kept then, counts no more: it was restored at %s by %s. Revoke it again if it is to be out",
			x.Kind, x.Name, x.At.UTC().Format(time.RFC3339), x.By, by.At.UTC().Format(time.RFC3339), by.By)})
	if _, err := l.Revocations(ctx); err != nil && ctx.Err() == nil {
		l.log.Error("revocations cannot be read, the last ones stay in force", "error", err)
	}
	l.rouse()
}

// doubted tells of a revocation that is kept late, and stands against a restoration of about the
// same time.
func (l *Ledger) doubted(x Revocation, r restoration) {
	l.log.Warn("a revocation is kept now that could not be before, although it was restored: which of the two was later cannot be told, so it counts", "kind", x.Kind, "name", x.Name,
		"revoked", x.At, "restored", r.At, "by", r.By)
	l.unkept.tell(belated{thing{x.Kind, x.Name}, true, l.now(),
		fmt.Sprintf("%s %s is revoked again, by a revocation that was made here at %s by %s and could not be kept then. It was restored at %s by %s; which of the two was later cannot be told for sure, so the revocation counts. Restore it again if it is to be in",
			x.Kind, x.Name, x.At.UTC().Format(time.RFC3339), x.By, r.At.UTC().Format(time.RFC3339), r.By)})
}

// belated is what became of a revocation that came late.
type belated struct {
	what thing
	out  bool // whether it is out since
	at   time.Time
	text string
}

// belatedly says what became of revocations that came late, as long as nobody changed it.
func (l *Ledger) belatedly() []string {
	set, now := l.revoked.Load(), l.now()
	return l.unkept.told(func(b belated) bool {
		return now.Sub(b.at) < belatedTold &&
			set.Has(b.what.kind, b.what.name) == b.out
	})
}

// sweepRestorations forgets those of long ago.
func (l *Ledger) sweepRestorations(ctx context.Context, now time.Time) error {
	records, err := l.records.List(ctx, restorationTable)
	if err != nil {
		return err
	}
	var errs []error
	for _, rec := range records {
		var r restoration
		if err := decodeRecord(rec.Value, &r); err != nil || now.Sub(r.At) < restorationKept {
			errs = append(errs, err)
			continue
		}
		errs = append(errs, l.forget(ctx, record.Write{Key: rec.Key, Version: rec.Version}))
	}
	return errors.Join(errs...)
}
