package ca

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/ashore-mesh/ashore/internal/audit"
	"github.com/ashore-mesh/ashore/internal/record"
	"github.com/ashore-mesh/ashore/internal/task"
)

// ErrPending means that a revocation is in force on this replica, and that the store does not have
// it yet. Run retries writing it.
var ErrPending = errors.New("in force on this replica alone, as the store cannot be written; " + revocationFile +
	" keeps it until it can be")

// RevokeRequest asks to revoke a subject, or to restore it.
type RevokeRequest struct {
	// Subject is a SPIFFE ID, or a workload "namespace/name": CheckSubject accepts it.
	Subject string
	// Reason and By are an operator's.
	Reason, By string
}

// event is the entry of the audit log for a request.
func (r RevokeRequest) event(action string) audit.Event {
	return audit.Event{Action: action, Actor: r.By, Target: r.Subject, Reason: r.Reason, Details: map[string]string{}}
}

// Revoke revokes a subject. What is revoked already stays so. Errors: ErrPending when it is in
// force here and not in the store; ErrNotFound when there is no such workload.
func (l *Ledger) Revoke(ctx context.Context, r RevokeRequest) error {
	// It is done even if the caller does not wait for a slow store.
	return l.change(context.WithoutCancel(ctx), audit.WorkloadRevoke, r, true)
}

// Restore ends the revocation of a subject. It needs the store. Errors: ErrNotFound when the
// subject is not revoked; with any error it stays revoked.
func (l *Ledger) Restore(ctx context.Context, r RevokeRequest) error {
	return l.change(ctx, audit.WorkloadRestore, r, false)
}

// NotRevoked records in the audit log that a revocation was requested and refused.
func (l *Ledger) NotRevoked(r RevokeRequest, err error) {
	_ = l.audited(r.event(audit.WorkloadRevoke), err) // the caller has the error
}

// change revokes or restores a subject, and records it in the audit log.
func (l *Ledger) change(ctx context.Context, action string, r RevokeRequest, revoke bool) error {
	event := r.event(action)
	err := l.retry(func() error { return l.tryChange(ctx, r, revoke) })
	_ = l.save() // Problems has the error
	if errors.Is(err, ErrPending) {
		event.Details["kept"], event.Details["error"] = "no", err.Error()
		l.config.Audit(event)
	} else if l.audited(event, err) == nil {
		return nil
	}
	return fmt.Errorf("%s %s: %w", strings.TrimPrefix(action, "workload."), r.Subject, err)
}

func (l *Ledger) tryChange(ctx context.Context, r RevokeRequest, revoke bool) error {
	x, version, _, err := l.revocation(ctx, r.Subject)
	switch {
	case err != nil:
		return err
	case revoke && x.Pending:
		return fmt.Errorf("%w since %s", ErrPending, x.At.Format(time.RFC3339))
	case revoke == x.Revoked: // by another replica, too
		l.remember(x)
		if revoke {
			return nil
		}
		return ErrNotFound
	}
	x = Revocation{Subject: r.Subject, Revoked: revoke, Epoch: x.Epoch + 1, Reason: r.Reason, By: r.By,
		At: l.config.Now().UTC()}
	var guard []record.Write
	if revoke {
		if guard, err = l.addCertificates(ctx, &x); err != nil {
			return err
		}
	}
	err = l.writeRevocation(ctx, x, version, guard)
	failed := err != nil && ctx.Err() == nil &&
		!errors.Is(err, record.ErrConflict) && !errors.Is(err, record.ErrTooLarge)
	if revoke && failed {
		x.Pending = true
		l.remember(x)
		task.Poke(l.wake)
		return fmt.Errorf("%w: %w", ErrPending, err)
	}
	return err
}

// revocation reads the latest record of a subject, and the version of what the store has. If this
// replica has a newer one, that is returned and ahead is true.
func (l *Ledger) revocation(ctx context.Context, subject string) (x Revocation, version string, ahead bool,
	err error) {
	x, version, err = l.revoked.get(ctx, revocationName(subject))
	l.revocations.mu.Lock()
	defer l.revocations.mu.Unlock()
	if mine, ok := l.revocations.known[subject]; ok && mine.newer(x) {
		mine.Epoch = max(mine.Epoch, x.Epoch+1)
		return mine, version, true, err
	}
	return x, version, false, err
}

// addCertificates adds the certificates of a workload to its revocation, and returns a write that
// makes a renewal at the same time conflict. Errors: ErrNotFound.
func (l *Ledger) addCertificates(ctx context.Context, x *Revocation) ([]record.Write, error) {
	if IsIdentity(x.Subject) {
		return nil, nil
	}
	w, version, err := l.workloads.get(ctx, x.Subject)
	if err == nil && version == "" {
		err = ErrNotFound
	}
	if err != nil {
		return nil, err
	}
	x.Certificates = w.Leaves
	write, err := l.workloads.replace(x.Subject, w, version)
	return []record.Write{write}, err
}

// writeRevocation writes a record to the store, and puts it in force here.
func (l *Ledger) writeRevocation(ctx context.Context, x Revocation, version string, guard []record.Write) error {
	x.Pending = false
	write, err := l.revoked.replace(revocationName(x.Subject), x, version)
	if err != nil {
		return err
	}
	if err = l.config.Records.Commit(ctx, append(guard, write)...); err == nil {
		l.remember(x)
	}
	return err
}

// because adds an operator's reason to a text, if there is one.
func because(text, reason string) string {
	if reason == "" {
		return text
	}
	return text + ": " + reason
}
