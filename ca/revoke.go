package ca

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
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

// maxReason bounds an operator's text, in bytes.
const maxReason = 1024

// RevokeRequest asks to revoke a subject, or to restore it.
type RevokeRequest struct {
	Kind RevocationKind
	// Name is the SPIFFE ID, the "namespace/name", or the serial number in hexadecimal digits.
	Name string
	// Reason and By are an operator's.
	Reason, By string
}

// event is the entry of the audit log for a request.
func (r RevokeRequest) event(action string) audit.Event {
	return audit.Event{Action: action, Actor: r.By, Target: r.Name, Reason: r.Reason,
		Details: map[string]string{"kind": string(r.Kind)}}
}

// Revoke revokes a subject. What is revoked already stays so. Errors: ErrPending when it is in
// force here and not in the store; ErrNotFound when there is no such workload or certificate; what
// is wrong with the request.
func (l *Ledger) Revoke(ctx context.Context, r RevokeRequest) error {
	if len(r.Reason) > maxReason {
		return fmt.Errorf("the reason has %d bytes, at most %d are allowed", len(r.Reason), maxReason)
	}
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
	var err error
	if r.Name, err = r.Kind.normalise(r.Name); err != nil {
		return err
	}
	event := r.event(action)
	err = l.retry(func() error { return l.tryChange(ctx, r, revoke) })
	_ = l.save() // Problems has the error
	if errors.Is(err, ErrPending) {
		event.Details["kept"], event.Details["error"] = "no", err.Error()
		l.config.Audit(event)
	} else if l.audited(event, err) == nil {
		return nil
	}
	return fmt.Errorf("%s %s %s: %w", strings.TrimPrefix(action, "workload."), r.Kind, r.Name, err)
}

func (l *Ledger) tryChange(ctx context.Context, r RevokeRequest, revoke bool) error {
	x, version, _, err := l.revocation(ctx, revocationKey(r.Kind, r.Name))
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
	x = Revocation{Kind: r.Kind, Name: r.Name, Revoked: revoke, Epoch: x.Epoch + 1, Until: x.Until, Reason: r.Reason,
		By: r.By, At: l.config.Now().UTC()}
	var guard []record.Write
	if revoke {
		if guard, err = l.addCertificates(ctx, &x); err != nil {
			return err
		}
	}
	err = l.writeRevocation(ctx, x, version, guard)
	failed := err != nil && ctx.Err() == nil && !errors.Is(err, record.ErrConflict) && !errors.Is(err, record.ErrTooLarge)
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
func (l *Ledger) revocation(ctx context.Context, key record.Key) (x Revocation, version string, ahead bool,
	err error) {
	x, version, err = l.revoked.get(ctx, key.Name)
	l.revocations.mu.Lock()
	defer l.revocations.mu.Unlock()
	if mine, ok := l.revocations.known[key]; ok && mine.newer(x) {
		mine.Epoch = max(mine.Epoch, x.Epoch+1)
		return mine, version, true, err
	}
	return x, version, false, err
}

// addCertificates adds the certificates that a revocation concerns, and returns a write that makes
// a renewal of the same workload conflict. Errors: ErrNotFound.
func (l *Ledger) addCertificates(ctx context.Context, x *Revocation) ([]record.Write, error) {
	name := x.Name
	switch x.Kind {
	case RevokeIdentity:
		return nil, nil
	case RevokeSerial:
		all, err := l.Workloads(ctx)
		i := slices.IndexFunc(all, func(w Workload) bool {
			return slices.ContainsFunc(w.Leaves, func(leaf Leaf) bool { return leaf.Serial == x.Name })
		})
		if i < 0 {
			return nil, cmp.Or(err, ErrNotFound)
		}
		name = all[i].Name
	}
	w, version, err := l.workloads.get(ctx, name)
	if err != nil {
		return nil, err
	}
	var concerned []Leaf
	for _, leaf := range w.Leaves {
		if x.Kind == RevokeWorkload || leaf.Serial == x.Name {
			concerned = append(concerned, leaf)
		}
	}
	if version == "" || x.Kind == RevokeSerial && len(concerned) == 0 {
		return nil, ErrNotFound
	}
	x.Certificates = concerned
	if x.Kind == RevokeSerial {
		x.Until = concerned[0].NotAfter
	}
	write, err := l.workloads.replace(name, w, version)
	return []record.Write{write}, err
}

// writeRevocation writes a record to the store, and puts it in force here.
func (l *Ledger) writeRevocation(ctx context.Context, x Revocation, version string, guard []record.Write) error {
	x.Pending = false
	write, err := l.revoked.replace(x.key().Name, x, version)
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
