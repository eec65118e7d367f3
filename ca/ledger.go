package ca

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
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
	// Records is where everything stands, shared with all replicas.
	Records record.Store
	// Dir is the folder of the authority's keys, where a copy of the revocations is kept: who loses
	// the records, or puts older ones in place, does not let anybody in. It is made when it is
	// missing. Empty: there is no copy.
	Dir string
	// TrustDomain is that of the identities that workloads get.
	TrustDomain string
	// Groups is the identity of the workloads of a WorkloadGroup "namespace/name": its namespace,
	// and its template's service account ("default" when it names none). Errors: ErrNoGroup, or why
	// it cannot be told now. Nil: there are no groups.
	Groups func(ctx context.Context, group string) (namespace, serviceAccount string, err error)
	// Present says where a workload is: whether a proxy that shows one of its certificates is
	// connected, or was a moment ago. Nil: nobody knows.
	Present func(w Workload) (p Presence, ok bool)
	// Replaced is told, once it is written down, that a workload joined anew with another key. Nil:
	// nobody is.
	Replaced func(Replacement)
	// Grace is how long after the end of its certificate a workload may renew with it. Zero means
	// DefaultGrace; negative means not at all.
	Grace time.Duration
	// Connections is how long peers use connections.
	Connections Connections
	// MaxAccount is how many workloads of one service account may be told apart by their keys
	// alone: those proven by a JWT that names no pod. Zero means DefaultMaxAccount.
	MaxAccount int
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
	records     record.Store
	trustDomain string
	groups      func(ctx context.Context, group string) (namespace, serviceAccount string, err error)
	grace       time.Duration
	// how long after the end of a certificate a connection may be in use that was opened with it
	outlive    time.Duration
	maxAccount int
	present    func(w Workload) (p Presence, ok bool)
	replaced   func(Replacement)
	audit      func(audit.Event)
	log        hclog.Logger
	now        func() time.Time
	accounts   accounts // safe for concurrent use

	follower record.Follower // set once; nil: the records are never out of touch
	changes  record.Changer  // set once; nil: the records do not tell what has changed
	heeded   record.Mark     // belongs to Run: of the keys that it has told of

	watchers record.Watchers // safe for concurrent use; told by Run
	wake     chan struct{}   // cap 1; tells Run that something is to be kept
	unkept   unkept          // safe for concurrent use
	keeping  sync.Mutex      // held while what is unkept is written or restored
	dir      folder          // set once; its path is empty when there is no copy

	copying sync.Mutex
	copied  []byte // guarded by copying: what the copy holds
	copyErr error  // guarded by copying: why it does not hold what is in force

	beginning sync.Mutex
	begun     begunRecord // guarded by beginning
	late      bool        // guarded by beginning: begun is not written yet

	// held while revocations are read and put in place, so that an older list never replaces a
	// newer one
	reading sync.Mutex
	kept    uint64                     // guarded by reading: the epoch that the records had last
	revoked atomic.Pointer[revokedSet] // never nil after NewLedger
}

// NewLedger makes a ledger and reads who is revoked. Errors: its records cannot be read.
func NewLedger(ctx context.Context, c LedgerConfig) (*Ledger, error) {
	l := &Ledger{dir: folder{path: c.Dir}, wake: make(chan struct{}, 1), trustDomain: c.TrustDomain, groups: c.Groups,
		grace: c.Grace, outlive: c.Connections.outlive(), maxAccount: cmp.Or(c.MaxAccount, DefaultMaxAccount),
		present: c.Present, replaced: c.Replaced, audit: c.Audit, log: c.Log, now: c.Now}
	switch {
	case l.grace == 0:
		l.grace = DefaultGrace
	case l.grace < 0:
		l.grace = 0
	}
	if l.audit == nil {
		l.audit = func(audit.Event) {}
	}
	if l.present == nil {
		l.present = func(Workload) (p Presence, ok bool) { return p, false }
	}
	if l.replaced == nil {
		l.replaced = func(Replacement) {}
	}
	if l.log == nil {
		l.log = hclog.NewNullLogger()
	}
	if l.now == nil {
		l.now = time.Now
	}
	l.changes, _ = c.Records.(record.Changer)
	l.follower, _ = c.Records.(record.Follower)
	if _, err := spiffe.New(c.TrustDomain, "default", "default"); err != nil {
		return nil, err
	}
	l.records = notedStore{c.Records, &l.unkept, l.now, func(err error) {
		l.log.Error("the ledger of workloads cannot be written: nobody joins or renews until it can", "error", err)
		l.rouse() // Run finds out when that is over
	}}
	if err := l.recall(ctx); err != nil {
		return nil, err
	}
	if _, err := l.Revocations(ctx); err != nil {
		return nil, err
	}
	l.keep(ctx) // what cannot be is told of, and tried again by Run
	_, err := l.Revocations(ctx)
	return l, err
}

// Run keeps up with the revocations of other replicas, and forgets what has ended, until ctx ends.
func (l *Ledger) Run(ctx context.Context) error {
	changed, keys := l.records.Watch(ctx, revocationTable), l.records.Watch(ctx, keyTable)
	sweep := time.NewTicker(sweepEvery)
	defer sweep.Stop()
	l.refresh(ctx) // what was told before we listened
	l.heed(ctx)
	l.watchers.Tell(revocationsChanged())
	var clock steady
	clock.look(l.now(), time.Now())
	for {
		var again <-chan time.Time
		if !l.keep(ctx) {
			again = time.After(keepAgain)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-again:
		case <-l.wake:
			l.watchers.Tell(revocationsChanged())
		case <-keys:
			l.heed(ctx)
		case <-changed:
			l.watchers.Tell(revocationsChanged())
			l.refresh(ctx)
		case <-sweep.C:
			if !clock.look(l.now(), time.Now()) {
				continue
			}
			if err := l.Sweep(ctx); err != nil && ctx.Err() == nil {
				l.log.Warn("what has ended cannot be forgotten", "error", err)
			}
		}
	}
}

// revocationsChanged is what watchers of revocations are told of.
func revocationsChanged() []record.Write {
	return []record.Write{{Key: record.Key{Table: revocationTable}}}
}

// rouse has Run look what is to be kept, and tell whoever watches.
func (l *Ledger) rouse() {
	select {
	case l.wake <- struct{}{}:
	default: // it has word already
	}
}

// refresh reads the revocations again; where they cannot be read, the last ones stay in force.
func (l *Ledger) refresh(ctx context.Context) {
	if _, err := l.Revocations(ctx); err != nil && ctx.Err() == nil {
		l.log.Error("revocations cannot be read, the last ones stay in force", "error", err)
	}
}

// Sweep forgets tokens that ended more than a day ago, who joined a while ago, workloads and keys
// that can come back no more, and revocations of certificates that no longer matter.
func (l *Ledger) Sweep(ctx context.Context) error {
	now := l.now()
	return errors.Join(l.sweepTokens(ctx, now), l.sweepClaims(ctx, now), l.sweepWorkloads(ctx, now),
		l.sweepReplaced(ctx, now), l.sweepRevocations(ctx, now), l.sweepRestorations(ctx, now))
}

func (l *Ledger) sweepTokens(ctx context.Context, now time.Time) error {
	records, err := l.records.List(ctx, tokenTable)
	if err != nil {
		return err
	}
	var errs []error
	for _, r := range records {
		t, err := decodeToken(r.Name, r.Value)
		if err != nil || now.Before(t.Expires.Add(tokenKept)) {
			errs = append(errs, err)
			continue
		}
		errs = append(errs, l.forget(ctx, record.Write{Key: r.Key, Version: r.Version}))
	}
	return errors.Join(errs...)
}

// forget deletes records, unless they have changed.
func (l *Ledger) forget(ctx context.Context, writes ...record.Write) error {
	if err := l.records.Commit(ctx, writes...); err != nil && !errors.Is(err, record.ErrConflict) {
		return err
	}
	return nil
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
		return spiffe.ID{}, fmt.Errorf("%.80q is not a service account: want small letters, digits, dashes and dots, at most 253", account)
	}
	return spiffe.New(l.trustDomain, namespace, account)
}
