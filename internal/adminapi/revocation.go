package adminapi

import (
	"context"
	"errors"
	"fmt"

	"github.com/ashore-mesh/ashore/ca"
	"github.com/ashore-mesh/ashore/internal/admin"
	"github.com/ashore-mesh/ashore/internal/spiffe"
)

// Revoke revokes an identity or a workload. When it returns, every connected peer refuses it within
// a second. What was revoked already is no error. Errors: admin.ErrInvalid; admin.ErrNotFound for a
// workload that is not known, and for an identity that no workload has, which is most likely
// mistyped, unless it is forced.
func (a *API) Revoke(ctx context.Context, r admin.RevokeRequest) (admin.Revoked, error) {
	q, err := revocation(ctx, r)
	if err != nil {
		return admin.Revoked{}, err
	}
	known, _ := a.Workloads(ctx) // what matters fails by itself
	workloads := concerned(known, q.Subject)
	unknown := notFound("nothing is revoked: no workload is known as %s. "+
		"\"ashorectl workload list\" shows what there is; --force revokes an identity that nobody has yet", q.Subject)
	if len(workloads) == 0 && ca.IsIdentity(q.Subject) && !r.Force && !a.Ledger.Revocations().Has(q.Subject) {
		a.Ledger.NotRevoked(q, unknown)
		return admin.Revoked{}, unknown
	}
	err = a.Ledger.Revoke(ctx, q)
	if errors.Is(err, ca.ErrNotFound) {
		return admin.Revoked{}, unknown
	}
	out := a.delivered(q)
	out.Workloads = workloads
	if errors.Is(err, ca.ErrPending) { // it is in force
		out.Notes = append(out.Notes, "WARNING: "+err.Error(),
			"It is retried every few seconds; \"ashorectl problems\" shows this until the store has it.")
		return out, nil
	}
	return out, withKind(err)
}

// Restore undoes Revoke. Errors: admin.ErrInvalid; admin.ErrNotFound if that is not revoked.
func (a *API) Restore(ctx context.Context, r admin.RevokeRequest) (admin.Revoked, error) {
	q, err := revocation(ctx, r)
	if err != nil {
		return admin.Revoked{}, err
	}
	err = a.Ledger.Restore(ctx, q)
	if errors.Is(err, ca.ErrNotFound) {
		err = notFound("%s is not revoked: \"ashorectl workload list\" shows what is", q.Subject)
	}
	if err != nil {
		return admin.Revoked{}, withKind(err)
	}
	return a.delivered(q), nil
}

// delivered says how many proxies of this replica receive a change now.
func (a *API) delivered(q ca.RevokeRequest) admin.Revoked {
	out := admin.Revoked{Name: q.Subject}
	for _, p := range a.Connected() {
		if p.Who.Identity == (spiffe.ID{}) || a.Revoked(p.Who.Identity, p.Who.Fingerprint) == nil {
			out.Proxies++
		}
	}
	note := fmt.Sprintf("connected proxies that receive it now: %d", out.Proxies)
	if out.Proxies == 0 {
		note = "WARNING: no proxy is connected to this replica (\"ashorectl status\")"
	}
	out.Notes = []string{note + "; other replicas send it to theirs, and disconnected proxies receive it when they " +
		"reconnect"}
	return out
}

// maxReason limits an operator's reason, in bytes.
const maxReason = 1024

// checkReason refuses a reason that is too long. Errors: admin.ErrInvalid.
func checkReason(reason string) error {
	if len(reason) > maxReason {
		return invalid("the reason has %d bytes: want %d at most", len(reason), maxReason)
	}
	return nil
}

// revocation returns what a request names. Errors: admin.ErrInvalid.
func revocation(ctx context.Context, r admin.RevokeRequest) (ca.RevokeRequest, error) {
	q := ca.RevokeRequest{Subject: r.Name, Reason: r.Reason, By: admin.Actor(ctx)}
	if err := ca.CheckSubject(r.Name); err != nil {
		return q, invalid("%v", err)
	}
	return q, checkReason(r.Reason)
}

// concerned returns the names of the workloads that a revocation is about.
func concerned(workloads []ca.Workload, subject string) (out []string) {
	for _, w := range workloads {
		if w.Identity == subject || w.Name == subject {
			out = append(out, w.Name)
		}
	}
	return out
}
