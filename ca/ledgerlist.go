package ca

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/ashore-mesh/ashore/internal/record"
)

// Workloads lists them by name. A record that cannot be read is an error beside the others.
func (l *Ledger) Workloads(ctx context.Context) ([]Workload, error) {
	records, err := l.records.List(ctx, workloadTable)
	if err != nil {
		return nil, fmt.Errorf("list workloads: %w", err)
	}
	out := make([]Workload, 0, len(records))
	var errs []error
	for _, r := range records {
		w, err := decodeWorkload(r.Name, r.Value)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		out = append(out, w)
	}
	return out, errors.Join(errs...)
}

// Workload returns one by its "namespace/name". Errors: ErrNotFound.
func (l *Ledger) Workload(ctx context.Context, name string) (Workload, error) {
	w, version, err := l.workload(ctx, name)
	if err == nil && version == "" {
		err = fmt.Errorf("workload %.200q: %w", name, ErrNotFound)
	}
	return w, err
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
		return l.writeWorkload(ctx, w, version)
	})
}

func (l *Ledger) writeWorkload(ctx context.Context, w Workload, version string, more ...record.Write) error {
	value, err := json.Marshal(w)
	if err != nil {
		return err
	}
	own := record.Write{Key: record.Key{Table: workloadTable, Name: w.Name}, Value: value, Version: version}
	return l.records.Commit(ctx, append(more, own)...)
}

// Facts are what a rotation of the root waits for, as far as the ledger knows: certificates and
// tokens, not who is connected. A record that cannot be read is an error: nobody may be forgotten.
func (l *Ledger) Facts(ctx context.Context) (Facts, error) {
	now := l.now()
	f := Facts{Grace: l.grace, Offered: map[string]string{}}
	all, err := l.Workloads(ctx)
	if err != nil {
		return Facts{}, err
	}
	revoked, err := l.Revocations(ctx)
	if err != nil {
		return Facts{}, err
	}
	out := revoked.identities()
	for _, w := range all {
		if w.Revoked || out[w.Identity] {
			continue
		}
		for _, leaf := range w.Leaves {
			if !leaf.Revoked && leaf.NotAfter.Add(l.grace).After(now) {
				f.Leaves = append(f.Leaves, LeafFact{Workload: w.Name, RootID: leaf.Root, BundleID: w.Bundle,
					NotAfter: leaf.NotAfter})
				f.Offered[w.Name] = w.Offered
			}
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

// sweepWorkloads forgets those that have no certificate to come back with, and no connection that
// was opened with one.
func (l *Ledger) sweepWorkloads(ctx context.Context, now time.Time) error {
	records, err := l.records.List(ctx, workloadTable)
	if err != nil {
		return err
	}
	var errs []error
	var stay []string
	for _, r := range records {
		w, err := decodeWorkload(r.Name, r.Value)
		if err != nil || now.Before(w.Expires().Add(max(l.grace, l.outlive))) {
			errs, stay = append(errs, err), append(stay, r.Name)
			continue
		}
		writes := []record.Write{{Key: r.Key, Version: r.Version}}
		for _, k := range []string{w.Key, w.Previous} {
			if k != "" {
				writes = append(writes, record.Write{Key: record.Key{Table: keyTable, Name: k}, Version: record.Any})
			}
		}
		errs = append(errs, l.forget(ctx, writes...))
	}
	l.accounts.set(stay)
	return errors.Join(errs...)
}
