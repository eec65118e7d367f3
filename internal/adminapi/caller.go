package adminapi

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/ashore-mesh/ashore/ca"
	"github.com/ashore-mesh/ashore/internal/admin"
	"github.com/ashore-mesh/ashore/internal/spiffe"
	"github.com/ashore-mesh/ashore/push"
	"github.com/ashore-mesh/ashore/xds/authz"
)

// explainedCaller is who sends the request.
type explainedCaller struct {
	id spiffe.ID
	// revoked names what of it is revoked beside its identity, "the workload shop/web-1"; empty:
	// nothing.
	revoked string
	notes   []string
}

// caller finds the caller: an identity, a connected proxy, or a workload by the ID of its proxy,
// because a revoked proxy is not connected. Errors: admin.ErrInvalid.
func (e Explainer) caller(ctx context.Context, c *push.Context, text string) (explainedCaller, error) {
	var joined []ca.Workload
	var notes []string
	if e.Workloads != nil {
		var err error
		if joined, err = e.Workloads(ctx); err != nil {
			notes = append(notes, "some workloads or revocations are not known: "+err.Error())
		}
	}
	if p, ok := e.proxy(text); ok {
		return explainedCaller{p.Who.Identity, revokedOf(joined, p.Who.Serial), notes}, nil
	}
	if i := strings.LastIndexByte(text, '.'); i > 0 && !strings.Contains(text, "/") {
		if named, ok := workloadNamed(joined, text[i+1:]+"/"+text[:i]); ok {
			named.notes = notes
			return named, nil
		}
		return explainedCaller{}, admin.NewError(admin.ErrInvalid, "no proxy %.200q is connected, and no workload of that "+
			"name has joined: write the identity, shop/web, a proxy, web-1.shop, or anonymous", text)
	}
	id, err := authz.Caller(c, text)
	if err != nil {
		return explainedCaller{}, admin.NewError(admin.ErrInvalid, "%v", err)
	}
	out := explainedCaller{id, "", notes}
	if !slices.ContainsFunc(joined, func(w ca.Workload) bool { return w.Identity == id.String() }) {
		named, ok := workloadNamed(joined, text)
		if !ok {
			named.id, ok = e.identityNamed(c, text)
		}
		if ok {
			named.notes = append(notes, fmt.Sprintf("no workload has the identity %s: this is about the workload %s, "+
				"whose identity is %s", id, text, cmp.Or(named.id.String(), "none")))
			return named, nil
		}
	}
	if e.Workloads != nil && id != (spiffe.ID{}) {
		out.addIdentity(joined)
	}
	return out, nil
}

// workloadNamed returns the joined workload called "shop/web-1".
func workloadNamed(joined []ca.Workload, name string) (explainedCaller, bool) {
	i := slices.IndexFunc(joined, func(w ca.Workload) bool { return w.Name == name })
	if i < 0 {
		return explainedCaller{}, false
	}
	id, err := spiffe.Parse(joined[i].Identity)
	return explainedCaller{id: id, revoked: revokedPart(joined[i])}, err == nil
}

// revokedOf names what is revoked of the workload that has the certificate with a serial number.
func revokedOf(joined []ca.Workload, serial string) string {
	for _, w := range joined {
		if slices.ContainsFunc(w.Leaves, func(l ca.Leaf) bool { return l.Serial == serial }) {
			return revokedPart(w)
		}
	}
	return ""
}

// addIdentity adds what is known of the workloads that have the identity of c.
func (c *explainedCaller) addIdentity(joined []ca.Workload) {
	var active, revoked []string
	for _, w := range joined {
		switch part := revokedPart(w); {
		case w.Identity != c.id.String():
		case part == "":
			active = append(active, w.Name)
		default:
			revoked = append(revoked, w.Name)
			c.revoked = part
		}
	}
	switch {
	case len(active)+len(revoked) == 0:
		c.notes = append(c.notes, fmt.Sprintf(
			"no workload that has joined has the identity %s: \"ashorectl workload list\" shows who has which", c.id))
	case len(active) > 0 && len(revoked) > 0:
		c.revoked = ""
		c.notes = append(c.notes, fmt.Sprintf("some workloads with this identity are revoked and refused (%s); "+
			"this is about the others: %s", strings.Join(revoked, ", "), strings.Join(active, ", ")))
	case len(revoked) > 1:
		c.revoked = "every workload with this identity (" + strings.Join(revoked, ", ") + ")"
	}
}

// revokedPart names what of a workload is revoked so that it can show no certificate; empty: nothing.
func revokedPart(w ca.Workload) string {
	switch {
	case w.Revoked:
		return "the workload " + w.Name
	case len(w.Leaves) > 0 && w.Leaves[len(w.Leaves)-1].Revoked:
		return "the latest certificate of the workload " + w.Name
	}
	return ""
}
