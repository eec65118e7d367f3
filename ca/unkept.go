package ca

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/ashore-mesh/ashore/internal/audit"
	"github.com/ashore-mesh/ashore/internal/record"
)

// ErrUnkept says that a revocation is in force and could not be written into the records: it is
// tried again until it is.
var ErrUnkept = errors.New("in force, and not kept")

// keepAgain is how often what could not be written is tried again.
const keepAgain = 2 * time.Second

// unkept is what is in force although the records did not take it. The zero value is empty. Safe
// for concurrent use.
type unkept struct {
	mu          sync.Mutex
	revocations map[record.Key]Revocation // guarded by mu
	tokens      map[string]Token          // guarded by mu: those that are revoked, by ID
	since       time.Time                 // guarded by mu: since when the records take nothing; zero: they do
	err         error                     // guarded by mu: why
	last        error                     // guarded by mu: why they did not take something, when it was the last time
	belated     []belated                 // guarded by mu: oldest first
}

// tell notes what operators are to be told.
func (u *unkept) tell(b belated) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.belated = append(slices.DeleteFunc(u.belated, func(old belated) bool { return old.what == b.what }), b)
}

// told are the texts of what is still to be told; the others are forgotten.
func (u *unkept) told(still func(belated) bool) []string {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.belated = slices.DeleteFunc(u.belated, func(b belated) bool { return !still(b) })
	var out []string
	for _, b := range u.belated {
		out = append(out, b.text)
	}
	return out
}

// refused remembers that the records did not take a write.
func (u *unkept) refused(err error, now time.Time) (first bool) {
	u.mu.Lock()
	defer u.mu.Unlock()
	first = u.since.IsZero()
	if first {
		u.since = now
	}
	u.err, u.last = err, err
	return first
}

// taken remembers that they took one, and says whether that is news.
func (u *unkept) taken() bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	news := !u.since.IsZero()
	u.since, u.err = time.Time{}, nil
	return news
}

func (u *unkept) add(x Revocation) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.revocations == nil {
		u.revocations = map[record.Key]Revocation{}
	}
	u.revocations[revocationKey(x.Kind, x.Name)] = x
}

// drop forgets a revocation, and says whether there was one.
func (u *unkept) drop(key record.Key) bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	_, ok := u.revocations[key]
	delete(u.revocations, key)
	return ok
}

func (u *unkept) get(key record.Key) (Revocation, bool) {
	u.mu.Lock()
	defer u.mu.Unlock()
	x, ok := u.revocations[key]
	return x, ok
}

// list is all revocations, the oldest first.
func (u *unkept) list() []Revocation {
	u.mu.Lock()
	defer u.mu.Unlock()
	out := make([]Revocation, 0, len(u.revocations))
	for _, x := range u.revocations {
		out = append(out, x)
	}
	slices.SortFunc(out, func(a, b Revocation) int {
		return cmp.Or(cmp.Compare(a.Epoch, b.Epoch),
			cmp.Compare(a.Name, b.Name))
	})
	return out
}

func (u *unkept) addToken(t Token) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.tokens == nil {
		u.tokens = map[string]Token{}
	}
	u.tokens[t.ID] = t
}

func (u *unkept) dropToken(id string) {
	u.mu.Lock()
	defer u.mu.Unlock()
	delete(u.tokens, id)
}

// token is t, revoked where that could not be kept.
func (u *unkept) token(t Token) Token {
	u.mu.Lock()
	defer u.mu.Unlock()
	if x, ok := u.tokens[t.ID]; ok && t.Revoked.IsZero() {
		t.Revoked, t.RevokedBy = x.Revoked, x.RevokedBy
	}
	return t
}

func (u *unkept) tokenList() []Token {
	u.mu.Lock()
	defer u.mu.Unlock()
	out := make([]Token, 0, len(u.tokens))
	for _, t := range u.tokens {
		out = append(out, t)
	}
	return out
}

// failing is since when the records take nothing, and why; zero: they do.
func (u *unkept) failing() (since time.Time, err error) {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.since, u.err
}

// epoch is the latest of the revocations.
func (u *unkept) epoch() (latest uint64) {
	u.mu.Lock()
	defer u.mu.Unlock()
	for _, x := range u.revocations {
		latest = max(latest, x.Epoch)
	}
	return latest
}

// counts are how many revocations and tokens there are, and why.
func (u *unkept) counts() (revocations, tokens int, why error) {
	u.mu.Lock()
	defer u.mu.Unlock()
	return len(u.revocations), len(u.tokens), u.last
}

// unwritable says that an error is of the records' keeping, and not of what was to be written.
func unwritable(ctx context.Context, err error) bool {
	_, refusal := errors.AsType[*Refusal](err)
	return err != nil && ctx.Err() == nil && !refusal && !errors.Is(err, record.ErrConflict) &&
		!errors.Is(err, record.ErrTooLarge) && !errors.Is(err, ErrNotFound)
}

// notedStore has a ledger know when its records take nothing.
type notedStore struct {
	record.Store
	unkept *unkept
	now    func() time.Time
	first  func(error) // called when it begins
}

// Commit implements record.Store.
func (s notedStore) Commit(ctx context.Context, writes ...record.Write) error {
	err := s.Store.Commit(ctx, writes...)
	switch {
	case err == nil:
		s.unkept.taken()
	case unwritable(ctx, err):
		if s.unkept.refused(err, s.now()) {
			s.first(err)
		}
	}
	return err
}

// keep tries again to write what could not be written, until ctx ends. It says whether there is
// nothing left to do.
func (l *Ledger) keep(ctx context.Context) (done bool) {
	done = l.keepRecords(ctx)
	return l.copyNow(l.revoked.Load()) && done // it may have room where the store has none
}

// keepRecords is keep of what goes into the records, as far as they take it.
func (l *Ledger) keepRecords(ctx context.Context) (done bool) {
	for _, x := range l.unkept.list() {
		if !l.keepRevocation(ctx, x) {
			return false
		}
	}
	for _, t := range l.unkept.tokenList() {
		if !l.keepToken(ctx, t) {
			return false
		}
	}
	if since, _ := l.unkept.failing(); !since.IsZero() || l.begunLate() {
		if err := l.writeBegun(ctx); err != nil { // nothing waits, but does the disk take anything?
			return false
		}
	}
	return true
}

// keepRevocation tries to write one, and says whether it is done with it.
func (l *Ledger) keepRevocation(ctx context.Context, x Revocation) bool {
	l.keeping.Lock()
	defer l.keeping.Unlock()
	key := revocationKey(x.Kind, x.Name)
	if _, still := l.unkept.get(key); !still { // it was restored
		return true
	}
	var since restoration
	var undone bool
	if err := l.retry(func() (err error) { since, undone, err = l.tryKeep(ctx, x); return err }); err != nil {
		if !unwritable(ctx, err) && ctx.Err() == nil {
			l.log.Error("a revocation in force cannot be kept", "kind", x.Kind, "name", x.Name, "error", err)
		}
		return false
	}
	l.unkept.drop(key)
	if undone {
		l.undone(ctx, x, since)
		return true
	}
	if since.mayUndo(x) {
		l.doubted(x, since)
	}
	l.log.Info("a revocation is kept now that could not be before", "kind", x.Kind, "name", x.Name)
	l.audit(audit.Event{Action: audit.WorkloadRevoke, Actor: "ashored", Target: x.Name,
		Reason:  because("kept now, after it could not be", x.Reason),
		Details: map[string]string{"kind": string(x.Kind), "kept": "yes", "by": x.By}})
	return true
}

// because is what happened, with an operator's reason if there is one.
func because(what, reason string) string {
	if reason == "" {
		return what
	}
	return what + ": " + reason
}

// tryKeep writes a revocation that is in force already, unless it was undone by a restoration
// since, which it returns: else the last one of before, if there is any.
func (l *Ledger) tryKeep(ctx context.Context, x Revocation) (since restoration, undone bool, err error) {
	was, err := l.records.Get(ctx, revocationKey(x.Kind, x.Name))
	if err != nil || was.Version != "" {
		return since, false, err
	}
	if since, err = l.restoration(ctx, x); err != nil {
		return since, false, err
	}
	if since.undoes(x, l.now()) {
		return since, true, l.behind() // it may have been revoked again since
	}
	return since, false, l.keepAt(ctx, x)
}

// keepAt writes a revocation that is in force already.
func (l *Ledger) keepAt(ctx context.Context, x Revocation) error {
	known := x.Certificates
	x.Certificates = nil
	until := x.Until
	w, version, err := l.hit(ctx, &x)
	if errors.Is(err, ErrNotFound) { // the workload is not known, or no more
		version, err = "", nil
	}
	if err != nil {
		return err
	}
	for _, leaf := range known {
		if !slices.ContainsFunc(x.Certificates, func(y RevokedLeaf) bool { return y.SHA256 == leaf.SHA256 }) {
			x.Certificates = append(x.Certificates, leaf)
		}
	}
	x.Until = later(x.Until, until)
	epoch, err := l.epochWrite(ctx, func(e uint64) uint64 { return max(e, x.Epoch) })
	if err != nil {
		return err
	}
	return l.commitRevocation(ctx, x, w, version, epoch)
}

// keepToken tries to write that a token is revoked, and says whether it is done with it.
func (l *Ledger) keepToken(ctx context.Context, x Token) bool {
	err := l.retry(func() error { return l.tryRevokeToken(ctx, x.ID, x.Revoked, x.RevokedBy) })
	if err != nil && !errors.Is(err, ErrNotFound) {
		return false
	}
	l.unkept.dropToken(x.ID)
	l.audit(audit.Event{Action: audit.TokenRevoke, Actor: "ashored", Target: x.ID,
		Reason: "kept now, after it could not be", Details: map[string]string{"kept": "yes", "by": x.RevokedBy}})
	return true
}

// Problems are what an operator should see to in the ledger.
func (l *Ledger) Problems() []string {
	var out []string
	if since, err := l.unkept.failing(); err != nil {
		out = append(out, fmt.Sprintf("the ledger of workloads cannot be written since %s: nobody joins or renews, and no join token is made: %v; "+
			"what is due is written within seconds once it can be", since.UTC().Format(time.RFC3339), err))
	}
	n, tokens, why := l.unkept.counts()
	kept := l.copyProblem()
	switch {
	case n > 0 && kept == nil && l.dir.path != "":
		out = append(out, fmt.Sprintf("%s in force that the store does not have yet; %s has what it lacks, and it is read from there at the next start: %v", revocations(n), l.dir.at(copyFile), why))
	case n > 0:
		out = append(out, fmt.Sprintf("%s in force and kept nowhere, and will be until ashored ends. Do not restart it before this problem is over: %v", revocations(n), why))
	}
	if tokens > 0 {
		out = append(out, fmt.Sprintf("the revocation of join tokens (%d) is kept nowhere: it holds until ashored ends. Do not restart it before this problem is over: %v", tokens, why))
	}
	if kept != nil {
		out = append(out, fmt.Sprintf("the copy of the revocations cannot be kept: %v: should the store be lost, those since the last copy are lost with it; mend what is said here: it is tried again every %s", kept, keepAgain))
	}
	return append(append(out, l.belatedly()...), l.losses()...)
}

// Unkept is how many revocations are in force that the records do not have.
func (l *Ledger) Unkept() int {
	n, _, _ := l.unkept.counts()
	return n
}

// Failing says that the records took nothing when they were last asked to.
func (l *Ledger) Failing() bool {
	since, _ := l.unkept.failing()
	return !since.IsZero()
}
