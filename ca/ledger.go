package ca

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/ashore-mesh/ashore/internal/admin"
	"github.com/ashore-mesh/ashore/internal/audit"
	"github.com/ashore-mesh/ashore/internal/dnsname"
	"github.com/ashore-mesh/ashore/internal/ratelimit"
	"github.com/ashore-mesh/ashore/internal/record"
	"github.com/ashore-mesh/ashore/internal/spiffe"
	"github.com/ashore-mesh/ashore/internal/task"
)

// DefaultGrace is how long a workload may renew with a certificate that has expired. A machine that
// was off for a long weekend renews by itself.
const DefaultGrace = 7 * 24 * time.Hour

const (
	// sweepEvery is how often records that have ended are deleted.
	sweepEvery = 10 * time.Minute
	// maxTries is how often a change is tried again when somebody else's was faster.
	maxTries = 20
)

var (
	// ErrNotFound means that there is no such token, workload or revocation.
	ErrNotFound = errors.New("not found")
	// ErrNoGroup means that there is no such WorkloadGroup.
	ErrNoGroup = errors.New("there is no such WorkloadGroup")
)

// LedgerConfig configures a Ledger. Records and TrustDomain are required.
type LedgerConfig struct {
	// Records are shared by all replicas.
	Records record.Store
	// Dir is the folder for the local file of revocations, which outlive the store. It is created
	// if it is missing. Empty: there is no file.
	Dir string
	// TrustDomain is that of the identities that workloads get. Aliases are other names of it.
	TrustDomain string
	Aliases     []string
	// Groups returns the namespace and the service account of a WorkloadGroup "namespace/name".
	// Errors: ErrNoGroup, or why it is not known now. Nil: there are no groups.
	Groups func(ctx context.Context, group string) (namespace, serviceAccount string, err error)
	// Replaced is called by Run after a workload has joined again with another key: with the known
	// certificates from before, and a text for the machine that has one of them. It may be nil.
	Replaced func(former []admin.Leaf, text string)
	// Grace is how long a workload may renew with a certificate that has expired.
	Grace time.Duration
	// Connections is how long peers use connections.
	Connections Connections
	// Audit receives the actions of operators. It may be nil.
	Audit func(audit.Event)
	// Log receives failures in the background. It may be nil.
	Log hclog.Logger
	// Now is the clock. Nil means time.Now.
	Now func() time.Time
}

// Ledger has join tokens, the index of workloads, and revocations. They are records, so they
// outlive the process and are the same on every replica. Safe for concurrent use.
type Ledger struct {
	config LedgerConfig // immutable
	// outlive is how long a connection may be used after its certificate has expired. Immutable.
	outlive time.Duration

	tokens    recordTable[Token]
	workloads recordTable[Workload]
	revoked   recordTable[Revocation]

	newKeys ratelimit.Limiter // of workloads that join and that only their keys distinguish, by account

	watchers    task.Broadcaster
	wake        chan struct{} // capacity 1; has Run reconcile
	revocations revocationState
}

// NewLedger makes a ledger and reads what is revoked. Errors: records cannot be read.
func NewLedger(ctx context.Context, c LedgerConfig) (*Ledger, error) {
	orDefaults(&c.Audit, &c.Log, &c.Now)
	if c.Replaced == nil {
		c.Replaced = func([]admin.Leaf, string) {}
	}
	if c.Groups == nil {
		c.Groups = func(context.Context, string) (string, string, error) { return "", "", ErrNoGroup }
	}
	l := &Ledger{config: c, outlive: c.Connections.outlive(), wake: make(chan struct{}, 1),
		tokens:    recordTable[Token]{c.Records, "token"},
		workloads: recordTable[Workload]{c.Records, "workload"},
		revoked:   recordTable[Revocation]{c.Records, "revocation"},
		newKeys:   ratelimit.Limiter{Burst: maxNewKeys, Every: newKeyEvery}}
	l.revocations.unsaved = make(chan struct{}, 1)
	if err := l.readLocal(); err != nil {
		return nil, err
	}
	if err := l.reconcile(ctx); err != nil && l.Revocations() == nil {
		return nil, err // else Run retries what could not be written
	}
	_ = l.save() // Problems has the error, and Run retries
	return l, nil
}

// Run reads revocations and joins of other replicas, and deletes what has ended, until ctx ends.
func (l *Ledger) Run(ctx context.Context) error {
	revoked := l.config.Records.Watch(ctx, l.revoked.name)
	joined := l.config.Records.Watch(ctx, l.workloads.name)
	reported := l.reportReplaced(ctx, nil)
	var saver sync.WaitGroup
	saver.Go(func() { l.saveChanges(ctx) })
	defer saver.Wait()
	sweep := time.NewTicker(sweepEvery)
	defer sweep.Stop()
	l.sweep(ctx)
	logged := ""
	for {
		var retry <-chan time.Time
		text := ""
		if err := l.reconcile(ctx); err != nil && ctx.Err() == nil {
			retry, text = time.After(reconcileRetry), err.Error()
			if text != logged {
				l.config.Log.Error("cannot reconcile revocations with the store; those in force stay", "error", err)
			}
		}
		logged = text
		select {
		case <-ctx.Done():
			return nil
		case <-retry:
		case <-l.wake:
		case <-revoked:
		case <-joined:
			reported = l.reportReplaced(ctx, reported)
		case <-sweep.C:
			l.sweep(ctx)
		}
	}
}

// sweep is Sweep; it logs errors.
func (l *Ledger) sweep(ctx context.Context) {
	if err := l.Sweep(ctx); err != nil && ctx.Err() == nil {
		l.config.Log.Warn("cannot delete what has ended; it is tried again", "every", sweepEvery, "error", err)
	}
}

// Sweep deletes join tokens that expired more than a day ago, and workloads that cannot renew any
// more.
func (l *Ledger) Sweep(ctx context.Context) error {
	now := l.config.Now()
	return errors.Join(
		l.tokens.sweep(ctx, func(t Token) bool { return !now.Before(t.Expires.Add(tokenKept)) }),
		l.workloads.sweep(ctx, func(w Workload) bool {
			// It has no certificate to renew with, and no open connection that began with one.
			return !now.Before(w.Expires().Add(max(l.config.Grace, l.outlive)))
		}))
}

// resolve returns the identity of a group's workloads. Errors: ErrNoGroup, also for a group that makes
// no identity, or why it is not known now.
func (l *Ledger) resolve(ctx context.Context, group string) (spiffe.ID, error) {
	namespace, account, err := l.config.Groups(ctx, group)
	if err != nil {
		return spiffe.ID{}, fmt.Errorf("group %.200q: %w", group, err)
	}
	id, err := l.identity(namespace, account)
	if err != nil {
		return spiffe.ID{}, fmt.Errorf("group %.200q: %w with an identity: %w", group, ErrNoGroup, err)
	}
	return id, nil
}

// identity is that of a service account of this mesh.
func (l *Ledger) identity(namespace, account string) (spiffe.ID, error) {
	if !dnsname.ValidLabel(namespace) {
		return spiffe.ID{}, fmt.Errorf("%.80q is not a namespace: want small letters, digits and dashes, at most 63",
			namespace)
	}
	if !dnsname.Valid(account) {
		return spiffe.ID{}, fmt.Errorf("%.80q is not a service account: want small letters, digits, dashes and dots, "+
			"at most 253", account)
	}
	return spiffe.New(l.config.TrustDomain, namespace, account)
}

// domains are all trust domains of this mesh.
func (l *Ledger) domains() []string {
	return append([]string{l.config.TrustDomain}, l.config.Aliases...)
}

// retry tries a change again when somebody else's was faster.
func (l *Ledger) retry(change func() error) error {
	var err error
	for range maxTries {
		if err = change(); !errors.Is(err, record.ErrConflict) {
			return err
		}
	}
	return err
}
