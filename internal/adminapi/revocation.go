package adminapi

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"math/big"
	"slices"
	"strings"

	"github.com/ashore-mesh/ashore/ca"
	"github.com/ashore-mesh/ashore/internal/admin"
	"github.com/ashore-mesh/ashore/internal/nearest"
	"github.com/ashore-mesh/ashore/internal/spiffe"
)

// Revoke revokes an identity, a workload or a certificate. When it returns, every connected peer
// refuses it within a second. What was revoked already is no error. Errors: admin.ErrInvalid;
// admin.ErrNotFound for a workload or serial that is not known, and for an identity that no workload
// has, which is most likely mistyped, unless it is forced.
func (o *Authority) Revoke(ctx context.Context, r admin.RevokeRequest) (admin.Revoked, error) {
	q, err := revocation(ctx, r)
	if err != nil {
		return admin.Revoked{}, err
	}
	known, _ := o.Ledger.Workloads(ctx) // what matters fails by itself
	concerned := concerned(known, q)
	if len(concerned) == 0 && q.Kind == ca.RevokeIdentity && !r.Force && !o.Ledger.Revocations().Has(q.Kind, q.Name) {
		err := o.unknown(q, known)
		o.Ledger.NotRevoked(q, err)
		return admin.Revoked{}, err
	}
	err = o.Ledger.Revoke(ctx, q)
	if errors.Is(err, ca.ErrNotFound) {
		return admin.Revoked{}, o.unknown(q, known)
	}
	out := o.delivered(admin.Revoked{Kind: string(q.Kind), Name: q.Name, Workloads: concerned})
	if errors.Is(err, ca.ErrPending) { // it is in force
		out.Notes = append(out.Notes, "WARNING: "+err.Error(),
			"It is retried every few seconds; \"ashorectl problems\" shows this until the store has it.")
		return out, nil
	}
	return out, withKind(err)
}

// delivered adds how many proxies of this replica receive a change now.
func (o *Authority) delivered(out admin.Revoked) admin.Revoked {
	proxies := map[string]bool{}
	for _, p := range o.Proxies.Proxies() {
		if p.Who.Identity == (spiffe.ID{}) || o.Revoked(p.Who.Identity, p.Who.Fingerprint) == nil {
			proxies[p.ID] = true
		}
	}
	out.Proxies = len(proxies)
	note := fmt.Sprintf("connected proxies that receive it now: %d", out.Proxies)
	if out.Proxies == 0 {
		note = "WARNING: no proxy is connected to this replica (\"ashorectl status\")"
	}
	note += "; other replicas send it to theirs, and disconnected proxies receive it when they reconnect"
	out.Notes = append(out.Notes, note)
	return out
}

// Restore undoes Revoke. Errors: admin.ErrInvalid; admin.ErrNotFound if that is not revoked.
func (o *Authority) Restore(ctx context.Context, r admin.RevokeRequest) (admin.Revoked, error) {
	q, err := revocation(ctx, r)
	if err != nil {
		return admin.Revoked{}, err
	}
	err = o.Ledger.Restore(ctx, q)
	if errors.Is(err, ca.ErrNotFound) {
		return admin.Revoked{}, admin.NewError(admin.ErrNotFound,
			"%s %s is not revoked: \"ashorectl workload list\" shows what is", q.Kind, q.Name)
	}
	if err != nil {
		return admin.Revoked{}, withKind(err)
	}
	out := o.delivered(admin.Revoked{Kind: string(q.Kind), Name: q.Name})
	known, err := o.Ledger.Workloads(ctx)
	if err != nil { // the workloads are restored
		out.Notes = append(out.Notes, "the workloads and other revocations of them are not known: "+err.Error())
		return out, nil
	}
	out.Workloads = concerned(known, q)
	revoked := o.Ledger.Revocations()
	for _, w := range known {
		if !slices.Contains(out.Workloads, w.Name) {
			continue
		}
		for _, r := range revoked.List {
			if r.Name == w.Name || r.Name == w.Identity {
				out.Notes = append(out.Notes, fmt.Sprintf(
					"%s is still revoked: \"ashorectl workload restore %s\" restores the %s", w.Name, r.Name, r.Kind))
			}
		}
	}
	return out, nil
}

// revocation returns what a request names. Errors: admin.ErrInvalid.
func revocation(ctx context.Context, r admin.RevokeRequest) (ca.RevokeRequest, error) {
	q := ca.RevokeRequest{Reason: r.Reason, By: admin.Actor(ctx)}
	n, isSerial := new(big.Int).SetString(strings.ReplaceAll(r.Serial, ":", ""), 16)
	switch {
	case len(slices.DeleteFunc([]string{r.Identity, r.Workload, r.Serial}, func(s string) bool { return s == "" })) != 1:
		return q, admin.NewError(admin.ErrInvalid, "name one of identity, workload and serial")
	case r.Identity != "":
		if _, err := spiffe.Parse(r.Identity); err != nil {
			return q, admin.NewError(admin.ErrInvalid, "%v", err)
		}
		q.Kind, q.Name = ca.RevokeIdentity, r.Identity
	case r.Workload != "":
		if !qualified(r.Workload) {
			return q, admin.NewError(admin.ErrInvalid, "%.200q is not a workload: want NAMESPACE/NAME", r.Workload)
		}
		q.Kind, q.Name = ca.RevokeWorkload, r.Workload
	case !isSerial || n.Sign() <= 0 || len(r.Serial) > 80:
		return q, admin.NewError(admin.ErrInvalid,
			"%.80q is not the serial number of a certificate: want hexadecimal digits", r.Serial)
	default:
		q.Kind, q.Name = ca.RevokeSerial, hex.EncodeToString(n.Bytes())
	}
	return q, checkReason(r.Reason)
}

// unknown is the error for a subject that is not known. It names a similar one, but does not suggest
// to revoke that one.
func (o *Authority) unknown(q ca.RevokeRequest, known []ca.Workload) error {
	var names []string
	for _, w := range known {
		names = append(names, map[ca.RevocationKind]string{ca.RevokeIdentity: w.Identity, ca.RevokeWorkload: w.Name}[q.Kind])
	}
	hint := ""
	if near := nearest.Name(q.Name, names); near != "" {
		hint = fmt.Sprintf(" There is one with a similar name (%s): revoke it only if you mean it.", near)
	}
	if id, err := spiffe.Parse(q.Name); err == nil && id.TrustDomain != o.TrustDomain {
		hint = fmt.Sprintf(" The trust domain of this mesh is %s.", o.TrustDomain)
	}
	const list = "\"ashorectl workload list\" shows"
	switch q.Kind {
	case ca.RevokeIdentity:
		return admin.NewError(admin.ErrNotFound, "nothing is revoked: no workload has the identity %s.%s "+list+
			" who has which; --force revokes it for whoever may get it later", q.Name, hint)
	case ca.RevokeWorkload:
		return admin.NewError(admin.ErrNotFound, "nothing is revoked: no workload %s has joined.%s "+list+" who did",
			q.Name, hint)
	}
	return admin.NewError(admin.ErrNotFound, "no certificate with the serial number %s is known, or it ended so long ago "+
		"that no peer can have a connection by it: "+list+" the latest of each workload", q.Name)
}

// concerned returns the names of the workloads that a revocation is about.
func concerned(workloads []ca.Workload, q ca.RevokeRequest) (out []string) {
	for _, w := range workloads {
		serial := func(l ca.Leaf) bool { return q.Kind == ca.RevokeSerial && strings.EqualFold(l.Serial, q.Name) }
		if q.Kind == ca.RevokeIdentity && w.Identity == q.Name || q.Kind == ca.RevokeWorkload && w.Name == q.Name ||
			slices.ContainsFunc(w.Leaves, serial) {
			out = append(out, w.Name)
		}
	}
	return out
}
