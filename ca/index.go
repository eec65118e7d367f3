package ca

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/ashore-mesh/ashore/internal/record"
)

// Workloads lists the index by name, with what is revoked of each workload. For a record that
// cannot be read it returns an error, together with the other workloads.
func (l *Ledger) Workloads(ctx context.Context) ([]Workload, error) {
	records, err := l.records.List(ctx, workloadTable)
	if err != nil {
		return nil, fmt.Errorf("list workloads: %w", err)
	}
	out := make([]Workload, 0, len(records))
	var errs []error
	revoked := l.Revocations()
	for _, r := range records {
		w, err := decodeWorkload(r.Name, r.Value)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		w.Revoked = revoked.Has(RevokeWorkload, w.Name)
		for i := range w.Leaves {
			w.Leaves[i].Revoked = revoked.Has(RevokeSerial, w.Leaves[i].Serial)
		}
		out = append(out, w)
	}
	return out, errors.Join(errs...)
}

// Acknowledge writes down that a workload, "namespace/name", has a bundle. It writes only when that
// is news. Errors: ErrNotFound.
func (l *Ledger) Acknowledge(ctx context.Context, name, bundle string) error {
	return l.retry(func() error {
		w, version, err := l.workload(ctx, name)
		switch {
		case err != nil:
			return err
		case version == "":
			return fmt.Errorf("workload %.200q: %w", name, ErrNotFound)
		case w.Bundle == bundle:
			return nil
		}
		w.Bundle, w.Offered = bundle, bundle
		write, err := workloadWrite(w, version)
		if err != nil {
			return err
		}
		return l.records.Commit(ctx, write)
	})
}

// Facts are what a rotation of the root waits for, as far as the ledger knows: certificates and
// tokens, not who is connected. A record that cannot be read is an error: no workload may be
// forgotten.
func (l *Ledger) Facts(ctx context.Context) (Facts, error) {
	now := l.now()
	f := Facts{Grace: l.grace}
	all, err := l.Workloads(ctx)
	if err != nil {
		return Facts{}, err
	}
	revoked := l.Revocations()
	for _, w := range all {
		if w.Revoked || revoked.Has(RevokeIdentity, w.Identity) {
			continue
		}
		leaves := slices.DeleteFunc(w.Leaves, func(l Leaf) bool { return l.Revoked })
		n := len(leaves)
		if n > 1 && now.Sub(w.Renewed) < settling {
			n-- // the latest may not be in use yet
		}
		if n > 0 && leaves[n-1].NotAfter.Add(l.grace).After(now) {
			f.Leaves = append(f.Leaves, LeafFact{Workload: w.Name, RootID: leaves[n-1].Root, BundleID: w.Bundle,
				NotAfter: leaves[n-1].NotAfter})
		}
	}
	tokens, err := l.Tokens(ctx)
	if err != nil {
		return Facts{}, err
	}
	for _, t := range tokens {
		if t.State(now) == "unused" {
			f.Tokens = append(f.Tokens, TokenFact{ID: t.ID, Created: t.Created, NotAfter: t.Expires})
		}
	}
	return f, nil
}

// sweepWorkloads forgets those that have no certificate to renew with, and no open connection that
// began with one. It counts the others.
func (l *Ledger) sweepWorkloads(ctx context.Context, now time.Time) error {
	count := map[string]int{}
	err := l.sweepTable(ctx, workloadTable, func(r record.Record) (bool, error) {
		w, err := decodeWorkload(r.Name, r.Value)
		if err == nil && !now.Before(w.Expires().Add(max(l.grace, l.outlive))) {
			return true, nil
		}
		if account, ok := keyNamedAccount(r.Name); ok {
			count[account]++
		}
		return false, err
	})
	l.keyNamed.Store(&count)
	return err
}
