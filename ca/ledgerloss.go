package ca

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"time"

	"github.com/ashore-mesh/ashore/internal/audit"
	"github.com/ashore-mesh/ashore/internal/record"
)

// ledgerTable has one record, begunName: what a ledger is known again by.
const ledgerTable, begunName = "ledger", "begun"

// lossTold is for how long it is told that a store was lost: by then every certificate of before
// has ended, unless it is set to live longer, and whoever did not join anew is gone.
const lossTold = 7 * 24 * time.Hour

// lossKind is what became of the store.
type lossKind string

const (
	// lossStore: it was begun anew beside an authority that is older.
	lossStore lossKind = "store"
	// lossOlder: it is of before revocations that the copy has.
	lossOlder lossKind = "older"
	// lossCopy: the store is there, and the copy was damaged.
	lossCopy lossKind = "copy"
)

// loss is what was lost.
type loss struct {
	Kind lossKind  `json:"kind"`
	At   time.Time `json:"at"`
	// Copy says that there was a copy.
	Copy bool `json:"copy,omitempty"`
	// Taken is how many revocations the copy had that the store had not.
	Taken int `json:"taken,omitempty"`
	// File is what was put aside.
	File string `json:"file,omitempty"`
}

// begunRecord says that a ledger was begun in these records.
type begunRecord struct {
	Format int       `json:"v"`
	At     time.Time `json:"at"`
	Losses []loss    `json:"losses,omitempty"`
}

func (b *begunRecord) format() int { return b.Format }

func begunKey() record.Key { return record.Key{Table: ledgerTable, Name: begunName} }

// recall puts in force again what the copy beside the root has and the records have not, and finds
// out whether these were lost. Errors: they cannot be read, or nothing says who is revoked: nobody
// is let in because two files are bad.
func (l *Ledger) recall(ctx context.Context) error {
	r, err := l.records.Get(ctx, begunKey())
	if err != nil {
		return err
	}
	if r.Version != "" {
		if err := decodeRecord(r.Value, &l.begun); err != nil {
			return fmt.Errorf("the record of the ledger's beginning: %w", err)
		}
	} else {
		l.begun, l.late = begunRecord{Format: 1, At: l.now().UTC()}, true
	}
	if l.dir.path == "" {
		return nil
	}
	if err := l.dir.open(); err != nil {
		return err
	}
	fresh, err := l.fresh(ctx, r.Version != "")
	if err != nil {
		return err
	}
	c, found, err := l.dir.readCopy()
	switch {
	case err != nil && fresh:
		return fmt.Errorf("%w; and the store is new, so that nothing says who is revoked: put the store and the folder %s back from one backup, or move %s aside to start without its revocations, and revoke again what the audit log names (workload.revoke)",
			err, l.dir.path, l.dir.at(copyFile))
	case err != nil:
		return l.putAside(err)
	case !found && fresh && l.hasRoot():
		l.lost(loss{Kind: lossStore})
	case found:
		return l.takeIn(ctx, c, fresh)
	}
	return nil
}

// fresh says that nothing was ever written down in these records, neither by a ledger nor by an
// authority.
func (l *Ledger) fresh(ctx context.Context, begun bool) (bool, error) {
	if begun {
		return false, nil
	}
	for _, name := range []string{rotationRecord, pluggedRecord} {
		if r, err := l.records.Get(ctx, record.Key{Table: table, Name: name}); err != nil || r.Version != "" {
			return false, err
		}
	}
	all, err := l.records.List(ctx, workloadTable)
	return len(all) == 0, err
}

// hasRoot says that there is an authority already.
func (l *Ledger) hasRoot() bool { return l.dir.has(rootFile) || l.dir.has(intermediateFile) }

// putAside has a damaged copy out of the way of the next one. The records are there.
func (l *Ledger) putAside(why error) error {
	aside := copyFile + ".damaged"
	if err := l.dir.rename(copyFile, aside); err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("%w; and it cannot be put aside: %w", why, err)
	}
	l.log.Error("the copy of the revocations cannot be read; the store has them, and a new copy is made", "error", why,
		"kept", l.dir.at(aside))
	l.lost(loss{Kind: lossCopy, File: l.dir.at(aside)})
	return nil
}

// takeIn puts in force what a copy has and the records have not. What they do not have although
// they are not older was restored, or has ended.
func (l *Ledger) takeIn(ctx context.Context, c revocationCopy, fresh bool) error {
	set, err := l.readRevocations(ctx)
	if err != nil {
		return err
	}
	have := map[record.Key]bool{}
	for _, x := range set.List {
		have[revocationKey(x.Kind, x.Name)] = true
	}
	taken := 0
	for _, x := range c.Revocations {
		key := revocationKey(x.Kind, x.Name)
		switch {
		case have[key]:
		case slices.Contains(c.Unkept, key.Name):
			l.unkept.add(x)
		case fresh || x.Epoch > set.Epoch:
			l.unkept.add(x)
			taken++
			l.audit(audit.Event{Action: audit.WorkloadRevoke, Actor: "ashored", Target: x.Name,
				Reason:  because("the store does not have this revocation, "+l.dir.at(copyFile)+" does", x.Reason),
				Details: map[string]string{"kind": string(x.Kind), "by": x.By, "at": x.At.UTC().Format(time.RFC3339)}})
		}
	}
	switch {
	case fresh:
		l.lost(loss{Kind: lossStore, Copy: true, Taken: taken})
	case taken > 0:
		l.lost(loss{Kind: lossOlder, Copy: true, Taken: taken})
	}
	return nil
}

// lost notes what was lost.
func (l *Ledger) lost(x loss) {
	x.At = l.now().UTC()
	l.beginning.Lock()
	l.begun.Losses, l.late = append(l.begun.Losses, x), true
	l.beginning.Unlock()
	l.log.Error("something of the ledger was lost", "what", l.describe(x))
}

// begunLate says that the record of the ledger's beginning is not written yet.
func (l *Ledger) begunLate() bool {
	l.beginning.Lock()
	defer l.beginning.Unlock()
	return l.late
}

// writeBegun writes it.
func (l *Ledger) writeBegun(ctx context.Context) error {
	l.beginning.Lock()
	defer l.beginning.Unlock()
	value, err := json.Marshal(l.begun)
	if err != nil {
		return err
	}
	if err := l.records.Commit(ctx, record.Write{Key: begunKey(), Value: value, Version: record.Any}); err != nil {
		return err
	}
	l.late = false
	return nil
}

// losses say what was lost lately, and what to do.
func (l *Ledger) losses() []string {
	l.beginning.Lock()
	defer l.beginning.Unlock()
	var out []string
	for _, x := range l.begun.Losses {
		if l.now().Sub(x.At) < lossTold {
			out = append(out, l.describe(x))
		}
	}
	return out
}

// Lost says that the store was lost lately, or an older one was put in its place: some who had
// joined have to join again.
func (l *Ledger) Lost() bool {
	l.beginning.Lock()
	defer l.beginning.Unlock()
	return slices.ContainsFunc(l.begun.Losses, func(x loss) bool {
		return x.Kind != lossCopy &&
			l.now().Sub(x.At) < lossTold
	})
}

// BegunAnew says that the store was begun anew lately beside an authority that is older: it may not
// be the one of this mesh, or all that it had is lost.
func (l *Ledger) BegunAnew() bool {
	l.beginning.Lock()
	defer l.beginning.Unlock()
	return slices.ContainsFunc(l.begun.Losses, func(x loss) bool {
		return x.Kind == lossStore &&
			l.now().Sub(x.At) < lossTold
	})
}

// revocations counts them as the beginning of a sentence about them.
func revocations(n int) string {
	if n == 1 {
		return "1 revocation is"
	}
	return fmt.Sprintf("%d revocations are", n)
}

// describe is a loss for people.
func (l *Ledger) describe(x loss) string {
	at := x.At.UTC().Format(time.RFC3339)
	switch x.Kind {
	case lossStore:
		what := fmt.Sprintf("no revocations are known from before, for there is no copy %s: look through the audit log (\"ashorectl audit tail\", workload.revoke) and revoke again", l.dir.at(copyFile))
		if x.Taken > 0 {
			what = fmt.Sprintf("%s in force that were made before, from the copy %s", revocations(x.Taken),
				l.dir.at(copyFile))
		} else if x.Copy {
			what = fmt.Sprintf("who was revoked by the copy %s still is", l.dir.at(copyFile))
		}
		return fmt.Sprintf("the store was begun anew at %s beside an authority that is older: who had joined, join tokens, objects of the store and their history are lost; %s. "+
			"Put a backup of the store in place, or have every workload join again: stop its agent, and then run a new line of \"ashorectl join-token create\" there. Until its machine does, no proxy of before that registers, as that of every agent does, gets configuration, policies or revocations from here, "+
			"and goes on with what it has; its certificate works until it ends and is not renewed, and only its identity can be revoked (\"ashorectl workload revoke --force spiffe://…\": nobody is known to have it)", at, what)
	case lossOlder:
		return fmt.Sprintf("the store was found at %s to be older than the copy of the revocations, and %s in force that it did not have. Who joined or renewed since it was copied has to join again, "+
			"join tokens that were used since may be used again (\"ashorectl join-token list\", and revoke those), and what was restored since is revoked again", at, revocations(x.Taken))
	}
	return fmt.Sprintf("the copy of the revocations was damaged at %s and is kept as %s; those of the store are in force. If the store was put back from a backup, revocations of after it are not known: look through the audit log (\"ashorectl audit tail\", workload.revoke)", at, x.File)
}
