package ca

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/ashore-mesh/ashore/internal/audit"
	"github.com/ashore-mesh/ashore/internal/record"
)

// maxReason bounds an operator's words.
const maxReason = 1024

// RevokeRequest asks to put something out, or to take it back in.
type RevokeRequest struct {
	Kind RevocationKind
	// Name is the SPIFFE ID, the "namespace/name", or the serial number in hexadecimal digits.
	Name string
	// Reason and By are an operator's.
	Reason, By string
}

// Revoke puts something out. When it returns, renewal is refused and Run has word to tell; what was
// out already stays so. Errors: ErrUnkept when it is in force and may not outlive the process;
// ErrNotFound when there is no such workload or certificate, or what is wrong with the request.
func (l *Ledger) Revoke(ctx context.Context, r RevokeRequest) error {
	if len(r.Reason) > maxReason {
		return fmt.Errorf("the reason has %d bytes, at most %d are allowed", len(r.Reason), maxReason)
	}
	name, err := r.Kind.normalise(r.Name)
	if err != nil {
		return err
	}
	r.Name = name
	// a store that hangs may outlast the patience of who asked, and what he asked for is to be done
	ctx = context.WithoutCancel(ctx)
	event := audit.Event{Action: audit.WorkloadRevoke, Actor: r.By, Target: r.Name, Reason: r.Reason,
		Details: map[string]string{"kind": string(r.Kind)}}
	err = l.retry(func() error { return l.tryRevoke(ctx, r) })
	if err != nil && !errors.Is(err, ErrUnkept) {
		l.failed(event, err)
		return fmt.Errorf("revoke %s %s: %w", r.Kind, r.Name, err)
	}
	_, read := l.Revocations(ctx)
	l.rouse()
	copied := l.copyNow(l.revoked.Load()) && l.dir.path != ""
	if err == nil {
		l.audit(event)
		return read
	}
	err = l.unkeptError(err, copied)
	event.Details["kept"], event.Details["error"] = "no", err.Error()
	l.audit(event)
	return errors.Join(fmt.Errorf("revoke %s %s: %w", r.Kind, r.Name, err), read)
}

// NotRevoked writes down that something was asked to be revoked, and was not.
func (l *Ledger) NotRevoked(r RevokeRequest, err error) {
	l.failed(audit.Event{Action: audit.WorkloadRevoke, Actor: r.By, Target: r.Name, Reason: r.Reason,
		Details: map[string]string{"kind": string(r.Kind)}}, err)
}

// unkeptError says what a revocation that the records did not take hangs on.
func (l *Ledger) unkeptError(err error, copied bool) error {
	if copied {
		return fmt.Errorf("%w: %s has it until the store takes it, and it is read from there at the next start", err,
			l.dir.at(copyFile))
	}
	return fmt.Errorf("%w: it holds until ashored ends, and no longer: do not restart ashored before \"ashorectl problems\" shows that it is kept", err)
}

// failed writes down that what was asked for was not done, also where nothing was to be done: who
// looks into what an operator did is to see a name that was mistyped.
func (l *Ledger) failed(e audit.Event, err error) {
	e.Outcome = audit.Failed
	e.Details["error"] = err.Error()
	l.audit(e)
}

func (l *Ledger) tryRevoke(ctx context.Context, r RevokeRequest) error {
	key := revocationKey(r.Kind, r.Name)
	was, err := l.records.Get(ctx, key)
	if err != nil || was.Version != "" {
		return err
	}
	if x, ok := l.unkept.get(key); ok {
		return fmt.Errorf("%w since %s", ErrUnkept, x.At.Format(time.RFC3339))
	}
	x := Revocation{Format: 1, Kind: r.Kind, Name: r.Name, Reason: r.Reason, By: r.By, At: l.now().UTC()}
	w, version, err := l.hit(ctx, &x)
	if err != nil {
		return err
	}
	epoch, err := l.epochWrite(ctx, func(e uint64) uint64 {
		x.Epoch = max(e, l.revoked.Load().Epoch, l.unkept.epoch()) + 1
		return x.Epoch
	})
	if err != nil {
		return err
	}
	err = l.commitRevocation(ctx, x, w, version, epoch)
	if unwritable(ctx, err) {
		l.unkept.add(x)
		return fmt.Errorf("%w: %w", ErrUnkept, err)
	}
	return err
}

// commitRevocation writes one, and with it the workload that it changes; version is empty when it
// changes none.
func (l *Ledger) commitRevocation(ctx context.Context, x Revocation, w Workload, version string,
	epoch record.Write) error {
	value, err := json.Marshal(x)
	if err != nil {
		return err
	}
	writes := []record.Write{{Key: revocationKey(x.Kind, x.Name), Value: value}, epoch}
	if version == "" {
		return l.records.Commit(ctx, writes...)
	}
	return l.writeWorkload(ctx, w, version, writes...)
}

// hit finds what a revocation puts out and marks it; version is empty when no workload changes. A
// workload's record always changes with it, so that a renewal that is on its way is refused.
func (l *Ledger) hit(ctx context.Context, x *Revocation) (w Workload, version string, err error) {
	switch x.Kind {
	case RevokeWorkload:
		w, version, err = l.workload(ctx, x.Name)
		if err == nil && version == "" {
			err = ErrNotFound
		}
		w.Revoked = true
		for _, leaf := range w.Known() {
			x.Certificates = append(x.Certificates, RevokedLeaf{leaf.SHA256, leaf.NotAfter})
		}
	case RevokeSerial:
		if w, err = l.bySerial(ctx, x.Name); err != nil {
			return w, "", err
		}
		if w, version, err = l.workload(ctx, w.Name); err != nil {
			return w, "", err
		}
		leaf := w.mark(x.Name, true)
		if leaf == nil { // it was forgotten meanwhile
			return w, "", ErrNotFound
		}
		x.Until, x.Certificates = leaf.NotAfter, []RevokedLeaf{{leaf.SHA256, leaf.NotAfter}}
	}
	return w, version, err
}

// mark says of the certificate with a serial number that it is revoked, or not, and returns it; nil
// when it is not known.
func (w *Workload) mark(serial string, revoked bool) *Leaf {
	for _, list := range []*[]Leaf{&w.Leaves, &w.Ended} {
		if i := slices.IndexFunc(*list, func(leaf Leaf) bool { return leaf.Serial == serial }); i >= 0 {
			*list = slices.Clone(*list)
			(*list)[i].Revoked = revoked
			return &(*list)[i]
		}
	}
	return nil
}

// bySerial is the workload that has a certificate with a serial number. Errors: ErrNotFound.
func (l *Ledger) bySerial(ctx context.Context, serial string) (Workload, error) {
	all, err := l.Workloads(ctx)
	for _, w := range all {
		if slices.ContainsFunc(w.Known(), func(leaf Leaf) bool { return leaf.Serial == serial }) {
			return w, nil
		}
	}
	if err == nil {
		err = ErrNotFound
	}
	return Workload{}, err
}

// epochWrite is the write of the epoch that follows on the one there is.
func (l *Ledger) epochWrite(ctx context.Context, following func(epoch uint64) uint64) (record.Write, error) {
	key := record.Key{Table: revocationTable, Name: epochName}
	r, err := l.records.Get(ctx, key)
	if err != nil {
		return record.Write{}, err
	}
	e := epochRecord{Format: 1}
	if r.Version != "" {
		if err := decodeRecord(r.Value, &e); err != nil {
			return record.Write{}, fmt.Errorf("epoch of revocations: %w", err)
		}
	}
	e.Epoch = following(e.Epoch)
	value, err := json.Marshal(e)
	return record.Write{Key: key, Value: value, Version: r.Version}, err
}

// Restore takes something back in. Errors: ErrNotFound when it is not out; with any other one it
// stays out.
func (l *Ledger) Restore(ctx context.Context, r RevokeRequest) error {
	name, err := r.Kind.normalise(r.Name)
	if err != nil {
		return err
	}
	r.Name = name
	event := audit.Event{Action: audit.WorkloadRestore, Actor: r.By, Target: r.Name, Reason: r.Reason,
		Details: map[string]string{"kind": string(r.Kind)}}
	if err := l.restore(ctx, r); err != nil {
		l.failed(event, err)
		return fmt.Errorf("restore %s %s: %w", r.Kind, r.Name, err)
	}
	l.audit(event)
	_, err = l.Revocations(ctx)
	l.rouse()
	l.copyNow(l.revoked.Load())
	return err
}

func (l *Ledger) restore(ctx context.Context, r RevokeRequest) error {
	l.keeping.Lock()
	defer l.keeping.Unlock()
	err := l.retry(func() error { return l.tryRestore(ctx, r) })
	if (err == nil || errors.Is(err, ErrNotFound)) && l.unkept.drop(revocationKey(r.Kind, r.Name)) {
		return nil
	}
	return err
}

func (l *Ledger) tryRestore(ctx context.Context, r RevokeRequest) error {
	was, err := l.records.Get(ctx, revocationKey(r.Kind, r.Name))
	if err != nil {
		return err
	}
	if was.Version == "" {
		return ErrNotFound
	}
	gone := record.Write{Key: was.Key, Version: was.Version}
	noted, err := l.restored(r)
	if err != nil {
		return err
	}
	w, version, err := l.forgiven(ctx, r)
	if errors.Is(err, ErrNotFound) { // the workload was forgotten since
		return l.records.Commit(ctx, gone, noted)
	}
	if err != nil {
		return err
	}
	return l.writeWorkload(ctx, w, version, gone, noted)
}

// forgiven is the workload that a restoration changes, without its mark. Errors: ErrNotFound when
// there is none.
func (l *Ledger) forgiven(ctx context.Context, r RevokeRequest) (w Workload, version string, err error) {
	name := r.Name
	switch r.Kind {
	case RevokeIdentity:
		return w, "", ErrNotFound
	case RevokeSerial:
		if w, err = l.bySerial(ctx, r.Name); err != nil {
			return w, "", err
		}
		name = w.Name
	}
	if w, version, err = l.workload(ctx, name); err != nil {
		return w, "", err
	}
	if version == "" {
		return w, "", ErrNotFound
	}
	if r.Kind == RevokeWorkload {
		w.Revoked = false
	} else {
		w.mark(r.Name, false)
	}
	return w, version, nil
}

// revokedNow says why a certificate is out, by what was last read: the records are not asked.
func (l *Ledger) revokedNow(identity, fingerprint string) error {
	s := l.revoked.Load()
	switch {
	case s.identity[identity]:
		return fmt.Errorf("identity %s is revoked", identity)
	case s.certificate[fingerprint]:
		return fmt.Errorf("certificate %s of %s is revoked", fingerprint, identity)
	}
	return nil
}
