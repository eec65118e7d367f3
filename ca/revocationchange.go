package ca

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/ashore-mesh/ashore/internal/audit"
	"github.com/ashore-mesh/ashore/internal/record"
)

// ErrPending says that a revocation is in force on this replica and that the store does not have it
// yet. Writing it is retried.
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
	// It is done although the caller may not wait for a slow store.
	return l.change(context.WithoutCancel(ctx), audit.WorkloadRevoke, r, l.tryRevoke)
}

// Restore ends the revocation of a subject. It needs the store. Errors: ErrNotFound when the
// subject is not revoked; with any error it stays revoked.
func (l *Ledger) Restore(ctx context.Context, r RevokeRequest) error {
	return l.change(ctx, audit.WorkloadRestore, r, l.tryRestore)
}

// change does what is requested, and records it in the audit log.
func (l *Ledger) change(ctx context.Context, action string, r RevokeRequest,
	try func(context.Context, RevokeRequest) error) error {
	name, err := r.Kind.normalise(r.Name)
	if err != nil {
		return err
	}
	r.Name = name
	event := r.event(action)
	err = l.retry(func() error { return try(ctx, r) })
	switch {
	case err == nil:
		l.audit(event)
		return nil
	case errors.Is(err, ErrPending):
		event.Details["kept"], event.Details["error"] = "no", err.Error()
		l.audit(event)
	default:
		l.failed(event, err)
	}
	return fmt.Errorf("%s %s %s: %w", strings.TrimPrefix(action, "workload."), r.Kind, r.Name, err)
}

// NotRevoked records in the audit log that a revocation was requested and refused.
func (l *Ledger) NotRevoked(r RevokeRequest, err error) { l.failed(r.event(audit.WorkloadRevoke), err) }

// failed records in the audit log that a request was not fulfilled.
func (l *Ledger) failed(e audit.Event, err error) {
	e.Outcome = audit.Failed
	e.Details["error"] = err.Error()
	l.audit(e)
}

func (l *Ledger) tryRevoke(ctx context.Context, r RevokeRequest) error {
	was, version, _, err := l.revocation(ctx, revocationKey(r.Kind, r.Name))
	switch {
	case err != nil:
		return err
	case was.Revoked && was.Pending:
		return fmt.Errorf("%w since %s", ErrPending, was.At.Format(time.RFC3339))
	case was.Revoked:
		l.remember(was)
		return nil
	}
	x := Revocation{Format: 1, Kind: r.Kind, Name: r.Name, Revoked: true, Epoch: was.Epoch + 1, Reason: r.Reason,
		By: r.By, At: l.now().UTC()}
	touched, err := l.touch(ctx, &x)
	if err != nil {
		return err
	}
	err = l.writeRevocation(ctx, x, version, touched...)
	if unwritable(ctx, err) {
		x.Pending = true
		l.remember(x)
		l.rouse()
		err = fmt.Errorf("%w: %w", ErrPending, err)
	}
	return err
}

func (l *Ledger) tryRestore(ctx context.Context, r RevokeRequest) error {
	x, version, _, err := l.revocation(ctx, revocationKey(r.Kind, r.Name))
	if err != nil {
		return err
	}
	if !x.Revoked {
		l.remember(x)
		return ErrNotFound
	}
	x.Revoked, x.Certificates = false, nil
	x.Epoch, x.Reason, x.By, x.At = x.Epoch+1, r.Reason, r.By, l.now().UTC()
	return l.writeRevocation(ctx, x, version)
}

// revocation reads the record of a subject, and the version of what the store has. If this replica
// knows a newer one, ahead is true and that one is returned.
func (l *Ledger) revocation(ctx context.Context, key record.Key) (x Revocation, version string, ahead bool,
	err error) {
	r, err := l.records.Get(ctx, key)
	if err == nil && r.Version != "" {
		x, err = decodeRevocation(r.Value)
	}
	if err != nil {
		return x, "", false, err
	}
	l.revocations.mu.Lock()
	defer l.revocations.mu.Unlock()
	if mine, ok := l.revocations.known[key]; ok && mine.newer(x) {
		mine.Epoch = max(mine.Epoch, x.Epoch+1)
		return mine, r.Version, true, nil
	}
	return x, r.Version, false, nil
}

// touch adds the certificates that a revocation puts out, and returns a write that makes a renewal
// of the same workload conflict. Errors: ErrNotFound.
func (l *Ledger) touch(ctx context.Context, x *Revocation) ([]record.Write, error) {
	name := x.Name
	switch x.Kind {
	case RevokeIdentity:
		return nil, nil
	case RevokeSerial:
		found, err := l.bySerial(ctx, x.Name)
		if err != nil {
			return nil, err
		}
		name = found.Name
	}
	w, version, err := l.workload(ctx, name)
	if err != nil {
		return nil, err
	}
	var out []RevokedLeaf
	for _, leaf := range w.Leaves {
		if x.Kind == RevokeWorkload || leaf.Serial == x.Name {
			out = append(out, RevokedLeaf{leaf.SHA256, leaf.NotAfter})
		}
	}
	if version == "" || x.Kind == RevokeSerial && len(out) == 0 {
		return nil, ErrNotFound
	}
	x.Certificates = out
	if x.Kind == RevokeSerial {
		x.Until = out[0].NotAfter
	}
	write, err := workloadWrite(w, version)
	return []record.Write{write}, err
}

// bySerial is the workload that has a certificate with a serial number. Errors: ErrNotFound.
func (l *Ledger) bySerial(ctx context.Context, serial string) (Workload, error) {
	all, err := l.Workloads(ctx)
	for _, w := range all {
		if slices.ContainsFunc(w.Leaves, func(leaf Leaf) bool { return leaf.Serial == serial }) {
			return w, nil
		}
	}
	if err == nil {
		err = ErrNotFound
	}
	return Workload{}, err
}

// writeRevocation writes a record to the store, and puts it in force here.
func (l *Ledger) writeRevocation(ctx context.Context, x Revocation, version string, more ...record.Write) error {
	x.Pending = false
	value, err := json.Marshal(x)
	if err != nil {
		return err
	}
	err = l.records.Commit(ctx, append(more, record.Write{Key: x.key(), Value: value, Version: version})...)
	if err == nil {
		l.remember(x)
	}
	return err
}

// unwritable says that an error is of the store, and not of what was to be written.
func unwritable(ctx context.Context, err error) bool {
	return err != nil && ctx.Err() == nil && !errors.Is(err, record.ErrConflict) && !errors.Is(err, record.ErrTooLarge)
}
