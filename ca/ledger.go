package ca

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/ashore-mesh/ashore/internal/audit"
	"github.com/ashore-mesh/ashore/internal/dnsname"
	"github.com/ashore-mesh/ashore/internal/record"
	"github.com/ashore-mesh/ashore/internal/spiffe"
)

// DefaultGrace is how long after the end of its certificate a workload may renew with it, unless
// something else is set: a machine that was away for a long weekend comes back by itself. It renews
// with the key that the ledger knows, and no other.
const DefaultGrace = 7 * 24 * time.Hour

// sweepEvery is how often what has ended is forgotten.
const sweepEvery = 10 * time.Minute

// ErrNoGroup says that there is no such WorkloadGroup.
var ErrNoGroup = errors.New("there is no such WorkloadGroup")

// errGroupIdentity says that a WorkloadGroup makes no identity.
var errGroupIdentity = errors.New("the WorkloadGroup makes no identity")

// LedgerConfig says where a ledger writes and whom it asks.
type LedgerConfig struct {
	// Records is where everything stands, shared with all replicas. It must implement
	// record.Changer.
	Records record.Store
	// Dir is the folder of the authority's keys, where a local file of the revocations is kept:
	// they outlive the store. It is created when it is missing. Empty: there is no file.
	Dir string
	// TrustDomain is that of the identities that workloads get.
	TrustDomain string
	// Groups is the identity of the workloads of a WorkloadGroup "namespace/name": its namespace,
	// and its template's service account ("default" when it names none). Errors: ErrNoGroup, or why
	// it cannot be told now. Nil: there are no groups.
	Groups func(ctx context.Context, group string) (namespace, serviceAccount string, err error)
	// Present returns where a workload is whose proxy is connected, or was a moment ago: "a machine
	// of this name is connected from 10.0.0.5"; else nothing. Nil: nobody knows.
	Present func(w Workload) string
	// Replaced is called by Run after a workload has joined again with another key, when the store
	// has it. It may be nil.
	Replaced func(Replacement)
	// Grace is how long after the end of its certificate a workload may renew with it.
	Grace time.Duration
	// Connections is how long peers use connections.
	Connections Connections
	// Audit gets what operators do. Nil: nobody does.
	Audit func(audit.Event)
	// Log gets what goes wrong in the background. Nil: nobody does.
	Log hclog.Logger
	// Now is the clock. Nil: time.Now.
	Now func() time.Time
}

// Ledger knows who may join, which workload holds which certificate, and who is out. All of it
// stands in records, so that it outlives the process and is the same for every replica. Safe for
// concurrent use.
type Ledger struct {
	records     record.Changer
	trustDomain string
	groups      func(ctx context.Context, group string) (namespace, serviceAccount string, err error)
	grace       time.Duration
	// how long after the end of a certificate a connection may be in use that was opened with it
	outlive  time.Duration
	present  func(w Workload) string
	replaced func(Replacement)
	audit    func(audit.Event)
	log      hclog.Logger
	now      func() time.Time
	// how many workloads only their keys tell apart, by service account, as of the last sweep
	keyNamed atomic.Pointer[map[string]int]

	follower record.Follower // set once; nil: the records are never out of touch

	dir         folder          // set once; empty when there is no local file
	watchers    record.Watchers // safe for concurrent use
	wake        chan struct{}   // cap 1; has Run reconcile
	revocations revocationState
}

// NewLedger makes a ledger and reads who is revoked. Errors: its records cannot be read.
func NewLedger(ctx context.Context, c LedgerConfig) (*Ledger, error) {
	records, ok := c.Records.(record.Changer)
	if !ok {
		return nil, errors.New("ca: the store of records does not tell changes")
	}
	l := &Ledger{records: records, dir: folder(c.Dir), wake: make(chan struct{}, 1), trustDomain: c.TrustDomain,
		groups: c.Groups, grace: c.Grace, outlive: c.Connections.outlive(), present: c.Present, replaced: c.Replaced,
		audit: c.Audit, log: c.Log, now: c.Now}
	orDefaults(&l.audit, &l.log, &l.now)
	if l.present == nil {
		l.present = func(Workload) string { return "" }
	}
	if l.replaced == nil {
		l.replaced = func(Replacement) {}
	}
	l.follower, _ = c.Records.(record.Follower)
	l.keyNamed.Store(&map[string]int{})
	if err := l.readLocal(); err != nil {
		return nil, err
	}
	if err := l.reconcile(ctx); err != nil && l.Revocations() == nil {
		return nil, err // else Run retries what could not be written
	}
	return l, nil
}

// Run keeps up with the revocations and joins of other replicas, and deletes what has ended, until
// ctx ends.
func (l *Ledger) Run(ctx context.Context) error {
	changed := l.records.Watch(ctx, revocationTable)
	entered := l.records.Watch(ctx, workloadTable)
	told := l.tellReplaced(ctx, nil)
	sweep := time.NewTicker(sweepEvery)
	defer sweep.Stop()
	if err := l.sweepWorkloads(ctx, l.now()); err != nil && ctx.Err() == nil { // it counts, too
		l.log.Warn("what has ended cannot be deleted", "error", err)
	}
	logged := ""
	for {
		var retry <-chan time.Time
		text := ""
		if err := l.reconcile(ctx); err != nil && ctx.Err() == nil {
			retry, text = time.After(reconcileRetry), err.Error()
			if text != logged {
				l.log.Error("revocations cannot be reconciled with the store; those in force stay so", "error", err)
			}
		}
		logged = text
		select {
		case <-ctx.Done():
			return nil
		case <-retry:
		case <-l.wake:
		case <-changed:
		case <-entered:
			told = l.tellReplaced(ctx, told)
		case <-sweep.C:
			if err := l.Sweep(ctx); err != nil && ctx.Err() == nil {
				l.log.Warn("what has ended cannot be deleted", "error", err)
			}
		}
	}
}

// rouse has Run reconcile.
func (l *Ledger) rouse() {
	select {
	case l.wake <- struct{}{}:
	default: // it will already
	}
}

// Sweep forgets tokens of machines and replicas that ended more than a day ago, workloads that
// cannot renew any more, and revocations of certificates that no longer matter.
func (l *Ledger) Sweep(ctx context.Context) error {
	now := l.now()
	tokens := l.sweepTable(ctx, tokenTable, func(r record.Record) (bool, error) {
		t, err := decodeToken(r.Name, r.Value)
		return err == nil && !now.Before(t.Expires.Add(tokenKept)), err
	})
	revocations := l.sweepTable(ctx, revocationTable, func(r record.Record) (bool, error) {
		x, err := decodeRevocation(r.Value)
		return err == nil && x.ended(now, l.revokedFor()+sweepSlack), err
	})
	replicas := l.sweepTable(ctx, table, func(r record.Record) (bool, error) {
		var t usedToken
		if !strings.HasPrefix(r.Name, usedTokens) {
			return false, nil
		}
		err := decodeRecord(r.Value, &t)
		return err == nil && now.After(t.Expires.Add(tokenKept)), err
	})
	return errors.Join(tokens, revocations, replicas, l.sweepWorkloads(ctx, now))
}

// sweepTable deletes the records of a table that have ended, unless they change meanwhile.
func (l *Ledger) sweepTable(ctx context.Context, table string, ended func(record.Record) (bool, error)) error {
	records, err := l.records.List(ctx, table)
	if err != nil {
		return err
	}
	var errs []error
	for _, r := range records {
		old, err := ended(r)
		if old {
			err = l.records.Commit(ctx, record.Write{Key: r.Key, Version: r.Version})
		}
		if !errors.Is(err, record.ErrConflict) {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// resolve is the identity of a group's workloads. Errors: ErrNoGroup, errGroupIdentity, or why it
// cannot be told now.
func (l *Ledger) resolve(ctx context.Context, group string) (spiffe.ID, error) {
	if l.groups == nil {
		return spiffe.ID{}, fmt.Errorf("group %.200q: %w", group, ErrNoGroup)
	}
	namespace, account, err := l.groups(ctx, group)
	if err != nil {
		return spiffe.ID{}, fmt.Errorf("group %.200q: %w", group, err)
	}
	id, err := l.identity(namespace, account)
	if err != nil {
		return spiffe.ID{}, fmt.Errorf("group %.200q: %w: %w", group, errGroupIdentity, err)
	}
	return id, nil
}

// identity is that of a service account here. Errors: a part that may not stand in one.
func (l *Ledger) identity(namespace, account string) (spiffe.ID, error) {
	if !dnsname.ValidLabel(namespace) {
		return spiffe.ID{}, fmt.Errorf("%.80q is not a namespace: want small letters, digits and dashes, at most 63",
			namespace)
	}
	if !dnsname.Valid(account) {
		return spiffe.ID{}, fmt.Errorf("%.80q is not a service account: want small letters, digits, dashes and dots, "+
			"at most 253", account)
	}
	return spiffe.New(l.trustDomain, namespace, account)
}
