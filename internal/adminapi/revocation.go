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
	"github.com/ashore-mesh/ashore/xds"
)

// Revoke implements admin.Workloads. An identity that nobody has is most likely mistyped: whoever
// revokes it is to know.
func (o *Authority) Revoke(ctx context.Context, r admin.RevokeRequest, who string) (admin.Revoked, error) {
	q, err := revocation(r, who)
	if err != nil {
		return admin.Revoked{}, err
	}
	known, _ := o.Ledger.Workloads(ctx) // what matters fails by itself
	concerned := concerned(known, q)
	if len(concerned) == 0 && q.Kind == ca.RevokeIdentity && !r.Force && !o.Ledger.Revocations().Has(q.Kind, q.Name) {
		err := o.nobody(q.Name, known)
		o.Ledger.NotRevoked(q, err)
		return admin.Revoked{}, err
	}
	err = o.Ledger.Revoke(ctx, q)
	if errors.Is(err, ca.ErrNotFound) {
		return admin.Revoked{}, unknown(q, known)
	}
	out := o.delivered(admin.Revoked{Kind: string(q.Kind), Name: q.Name, Workloads: names(concerned)})
	if errors.Is(err, ca.ErrPending) { // it is in force
		out.Notes = append(out.Notes,
			"WARNING: "+err.Error(), "It is retried every few seconds; \"ashorectl problems\" shows this until the store has it.")
		return out, nil
	}
	return out, answered(err)
}

// delivered adds how many proxies of this replica receive a change now.
func (o *Authority) delivered(out admin.Revoked) admin.Revoked {
	out.Proxies = o.Proxies.Count(func(p xds.Peer) bool {
		return p.Identity == (spiffe.ID{}) || o.Revoked(p.Identity, p.Fingerprint()) == nil
	})
	note := fmt.Sprintf("connected proxies that receive it now: %d", out.Proxies)
	if out.Proxies == 0 {
		note = "WARNING: no proxy is connected to this replica (\"ashorectl status\")"
	}
	note += "; other replicas send it to theirs, and disconnected proxies receive it when they reconnect"
	out.Notes = append(out.Notes, note)
	return out
}

// Restore implements admin.Workloads.
func (o *Authority) Restore(ctx context.Context, r admin.RevokeRequest, who string) (admin.Revoked, error) {
	q, err := revocation(r, who)
	if err != nil {
		return admin.Revoked{}, err
	}
	err = o.Ledger.Restore(ctx, q)
	if errors.Is(err, ca.ErrNotFound) {
		return admin.Revoked{}, admin.NewError(admin.ErrNotFound,
			fmt.Sprintf("%s %s is not revoked: \"ashorectl workload list\" shows what is", q.Kind, q.Name))
	}
	if err != nil {
		return admin.Revoked{}, answered(err)
	}
	known, errs := o.Ledger.Workloads(ctx)
	out := o.delivered(admin.Revoked{Kind: string(q.Kind), Name: q.Name})
	list, err := o.ListWorkloads(ctx)
	if err = errors.Join(err, errs); err != nil { // what was asked for is done
		out.Notes = append(out.Notes,
			"whom it concerns, and by what else they are revoked, cannot be told: "+err.Error())
		return out, nil
	}
	out.Workloads = names(concerned(known, q))
	out.Notes = append(out.Notes, stillRevoked(list, out.Workloads)...)
	return out, nil
}

// stillRevoked says of workloads by what else they are revoked.
func stillRevoked(list admin.WorkloadList, workloads []string) []string {
	var out []string
	for _, w := range list.Workloads {
		if !w.Revoked || !slices.Contains(workloads, w.Name) {
			continue
		}
		for _, r := range list.Revocations {
			if r.Name == w.Name || r.Name == w.Identity {
				out = append(out, fmt.Sprintf("%s is still revoked: \"ashorectl workload restore %s\" restores the %s",
					w.Name, r.Name, r.Kind))
			}
		}
	}
	return out
}

// revocation is what a request names. Errors: admin.ErrInvalid.
func revocation(r admin.RevokeRequest, who string) (ca.RevokeRequest, error) {
	q := ca.RevokeRequest{Reason: r.Reason, By: who}
	switch {
	case r.Identity != "":
		if _, err := spiffe.Parse(r.Identity); err != nil {
			return q, admin.NewError(admin.ErrInvalid, err.Error())
		}
		q.Kind, q.Name = ca.RevokeIdentity, r.Identity
	case r.Workload != "":
		if _, _, ok := cutName(r.Workload); !ok {
			return q, admin.NewError(admin.ErrInvalid, fmt.Sprintf("%.200q is not a workload: want NAMESPACE/NAME",
				r.Workload))
		}
		q.Kind, q.Name = ca.RevokeWorkload, r.Workload
	default:
		n, ok := new(big.Int).SetString(strings.ReplaceAll(r.Serial, ":", ""), 16)
		if !ok || n.Sign() <= 0 || len(r.Serial) > 80 {
			return q, admin.NewError(admin.ErrInvalid,
				fmt.Sprintf("%.80q is not the serial number of a certificate: want hexadecimal digits", r.Serial))
		}
		q.Kind, q.Name = ca.RevokeSerial, hex.EncodeToString(n.Bytes())
	}
	return q, nil
}

// nobody is the error for an identity that no workload has.
func (o *Authority) nobody(name string, known []ca.Workload) error {
	hint := similar(name, identities(known))
	if id, err := spiffe.Parse(name); err == nil && id.TrustDomain != o.TrustDomain {
		hint = fmt.Sprintf(" The trust domain of this mesh is %s.", o.TrustDomain)
	}
	return admin.NewError(admin.ErrNotFound,
		fmt.Sprintf("nothing is revoked: no workload has the identity %s.%s \"ashorectl workload list\" shows who has which; --force revokes it for whoever may get it later", name, hint))
}

// unknown is the error for something to revoke that was never seen.
func unknown(q ca.RevokeRequest, known []ca.Workload) error {
	if q.Kind == ca.RevokeSerial {
		return admin.NewError(admin.ErrNotFound,
			fmt.Sprintf("no certificate with the serial number %s is known, or it ended so long ago that no peer can have a connection by it: \"ashorectl workload list\" shows the latest of each workload", q.Name))
	}
	return admin.NewError(admin.ErrNotFound,
		fmt.Sprintf("nothing is revoked: no workload %s has joined.%s \"ashorectl workload list\" shows who did",
			q.Name, similar(q.Name, names(known))))
}

// maxSimilar is how many names are told that may have been meant.
const maxSimilar = 3

// similar is a sentence about the names that are like one that is not known. It does not say that
// one of them was meant: to revoke another one is no small mistake.
func similar(name string, known []string) string {
	var near []string
	rest := slices.Clone(known)
	for len(near) < maxSimilar {
		one := nearest.Name(name, rest)
		if one == "" {
			break
		}
		near = append(near, one)
		rest = slices.DeleteFunc(rest, func(k string) bool { return k == one })
	}
	if len(near) == 0 {
		return ""
	}
	return fmt.Sprintf(" There are others with a name like it (%s): make sure whom you mean before you revoke one of these.", strings.Join(near, ", "))
}

// concerned are those of workloads that a revocation is about.
func concerned(workloads []ca.Workload, q ca.RevokeRequest) []ca.Workload {
	return slices.DeleteFunc(slices.Clone(workloads), func(w ca.Workload) bool {
		switch q.Kind {
		case ca.RevokeIdentity:
			return w.Identity != q.Name
		case ca.RevokeWorkload:
			return w.Name != q.Name
		}
		return !slices.ContainsFunc(w.Leaves, func(l ca.Leaf) bool { return strings.EqualFold(l.Serial, q.Name) })
	})
}

// names are those of workloads.
func names(workloads []ca.Workload) []string {
	var out []string
	for _, w := range workloads {
		out = append(out, w.Name)
	}
	return out
}

// identities are those of workloads.
func identities(workloads []ca.Workload) []string {
	var out []string
	for _, w := range workloads {
		out = append(out, w.Identity)
	}
	return out
}
