package ca

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ashore-mesh/ashore/internal/audit"
	"github.com/ashore-mesh/ashore/internal/readfile"
	"github.com/ashore-mesh/ashore/internal/record"
	"github.com/ashore-mesh/ashore/internal/task"
	"github.com/ashore-mesh/ashore/internal/wholefile"
)

const (
	// revocationFile is in the folder of the root's key. Because of it, this replica knows its
	// revocations when the store is lost or was restored from a backup.
	revocationFile = "revocations.json"
	// maxRevocationFile bounds it, in bytes.
	maxRevocationFile = 32 << 20
	// reconcileRetry is how often a write to the store or to the file is retried.
	reconcileRetry = 2 * time.Second
)

// revocationState is what this replica knows of revocations. Reading it never waits for the store or
// the disk.
type revocationState struct {
	mu       sync.Mutex
	known    map[string]Revocation // guarded by mu; by subject
	fileErr  error                 // guarded by mu: why the file is out of date
	storeErr error                 // guarded by mu: why the store was not written

	unsaved chan struct{} // capacity 1; has Run write the file
	saving  sync.Mutex    // held while the file is written
	written []byte        // guarded by saving: what the file holds

	current atomic.Pointer[Revocations]
}

// Revocations returns what is revoked. It does not wait for the store.
func (l *Ledger) Revocations() *Revocations { return l.revocations.current.Load() }

// Watch reports, until ctx ends and while Run runs, that revocations have changed, also on another
// replica.
func (l *Ledger) Watch(ctx context.Context) <-chan struct{} {
	return l.watchers.Watch(ctx)
}

// remember takes a record that this replica read or wrote, or could not write.
func (l *Ledger) remember(x Revocation) {
	l.update(func(known map[string]Revocation) {
		if x.Subject != "" && known[x.Subject].Epoch <= x.Epoch {
			known[x.Subject] = x
		}
	})
}

// update changes what is known, puts it in force and notifies watchers. Run writes the file.
func (l *Ledger) update(change func(known map[string]Revocation)) {
	s := &l.revocations
	s.mu.Lock()
	change(s.known)
	s.current.Store(newRevocations(s.known, l.domains(), l.config.Now().Add(-l.outlive)))
	s.mu.Unlock()
	l.watchers.Notify()
	task.Poke(s.unsaved)
}

// saveChanges writes the local file after changes, until ctx ends. It has its own goroutine, so
// that a disk that hangs delays no revocation.
func (l *Ledger) saveChanges(ctx context.Context) {
	for ctx.Err() == nil {
		select {
		case <-ctx.Done():
		case <-l.revocations.unsaved:
		}
		for l.save() != nil && task.Sleep(ctx, reconcileRetry) {
		}
	}
}

// save writes what is known to the local file, if that has changed.
func (l *Ledger) save() error {
	if l.config.Dir == "" {
		return nil
	}
	s := &l.revocations
	s.saving.Lock()
	defer s.saving.Unlock()
	s.mu.Lock()
	list := slices.SortedFunc(maps.Values(s.known),
		func(a, b Revocation) int { return cmp.Compare(a.Subject, b.Subject) })
	s.mu.Unlock()
	text, err := json.Marshal(list)
	if err == nil && !bytes.Equal(text, s.written) {
		err = wholefile.Write(folder(l.config.Dir).at(revocationFile), text)
	}
	if err == nil {
		s.written = text
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if err != nil && s.fileErr == nil {
		l.config.Log.Error("cannot write the local file of revocations", "error", err)
	}
	s.fileErr = err
	return err
}

// readLocal reads the file of this replica. A damaged one is replaced by what the store has.
func (l *Ledger) readLocal() error {
	known := map[string]Revocation{}
	l.revocations.known = known
	if l.config.Dir == "" {
		return nil
	}
	dir := folder(l.config.Dir)
	if err := dir.open(); err != nil {
		return err
	}
	text, _, err := readfile.Read(dir.at(revocationFile), maxRevocationFile)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	var list []Revocation
	if err := json.Unmarshal(text, &list); err != nil {
		l.config.Log.Error("the local file of revocations is damaged and is replaced by what the store has",
			"file", dir.at(revocationFile), "error", err)
		return nil
	}
	for _, x := range list {
		known[x.Subject] = x
	}
	return nil
}

// reconcile makes this replica and the store agree: the newer record of each subject counts.
// Errors: the store cannot be read, or written. What was in force stays.
func (l *Ledger) reconcile(ctx context.Context) error {
	list, err := l.revoked.list(ctx)
	if err != nil {
		return err
	}
	stored := make(map[string]Revocation, len(list))
	for _, x := range list {
		stored[x.Subject] = x
	}
	var errs []error
	for _, subject := range l.merge(stored) {
		errs = append(errs, l.retry(func() error { return l.writeLocal(ctx, subject) }))
	}
	l.revocations.mu.Lock()
	defer l.revocations.mu.Unlock()
	l.revocations.storeErr = errors.Join(errs...)
	return l.revocations.storeErr
}

// merge takes what is newer in the store, and returns the subjects whose records are newer here.
func (l *Ledger) merge(stored map[string]Revocation) (newer []string) {
	l.update(func(known map[string]Revocation) {
		for subject, x := range stored {
			if mine := known[subject]; !mine.newer(x) {
				known[subject] = x
			}
		}
		for subject, x := range known {
			if x.newer(stored[subject]) {
				newer = append(newer, subject)
			}
		}
	})
	return newer
}

// writeLocal writes a record that is newer here than in the store.
func (l *Ledger) writeLocal(ctx context.Context, subject string) error {
	x, version, ahead, err := l.revocation(ctx, subject)
	if err != nil || !ahead {
		return err
	}
	var guard []record.Write
	if x.Pending { // its workload may have more certificates by now
		if guard, err = l.addCertificates(ctx, &x); err != nil && !errors.Is(err, ErrNotFound) {
			return err
		}
	}
	if err := l.writeRevocation(ctx, x, version, guard); err != nil {
		return err
	}
	action := audit.WorkloadRevoke
	if !x.Revoked {
		action = audit.WorkloadRestore
	}
	l.config.Log.Info("wrote a revocation that the store did not have", "subject", subject, "revoked", x.Revoked)
	l.config.Audit(audit.Event{Action: action, Actor: "ashored", Target: subject,
		Reason:  because("written to the store, which did not have it", x.Reason),
		Details: map[string]string{"kept": "yes", "by": x.By}})
	return nil
}

// Pending is how many revocations are in force that the store does not have.
func (l *Ledger) Pending() int {
	l.revocations.mu.Lock()
	defer l.revocations.mu.Unlock()
	n := 0
	for _, x := range l.revocations.known {
		if x.Pending {
			n++
		}
	}
	return n
}

// Problems are why revocations cannot be written to the store or to the local file.
func (l *Ledger) Problems() []string {
	var out []string
	n := l.Pending()
	l.revocations.mu.Lock()
	defer l.revocations.mu.Unlock()
	if err := l.revocations.storeErr; err != nil && n > 0 {
		out = append(out, fmt.Sprintf("%d revocations are in force on this replica and not in the store, which is "+
			"retried every %s: %v", n, reconcileRetry, err))
	}
	if err := l.revocations.fileErr; err != nil {
		out = append(out, fmt.Sprintf("%s cannot be written: revocations that the store does not have are lost when "+
			"ashored ends. Free or repair the disk; it is retried every %s: %v",
			folder(l.config.Dir).at(revocationFile), reconcileRetry, err))
	}
	return out
}
