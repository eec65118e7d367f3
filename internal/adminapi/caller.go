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

// explainedCaller is who asks.
type explainedCaller struct {
	id spiffe.ID
	// revoked is what of it is revoked beside its identity, "the workload shop/web"; empty:
	// nothing.
	revoked string
	// notes are what is worth knowing of it.
	notes []string
}

// caller finds out who asks: a workload by the ID of its proxy, which need not be connected, for
// revoked ones are cut off; an identity; or a workload by its name. Errors: admin.ErrInvalid.
func (e Explainer) caller(ctx context.Context, c *push.Context, text string) (explainedCaller, error) {
	var joined []ca.Workload
	var unread error
	if e.Workloads != nil {
		joined, unread = e.Workloads(ctx)
	}
	who, err := e.callerOf(c, joined, text)
	if unread != nil {
		who.notes = append(who.notes, "some of who has joined or is revoked cannot be told: "+unread.Error())
	}
	return who, err
}

// callerOf is caller among those that have joined.
func (e Explainer) callerOf(c *push.Context, joined []ca.Workload, text string) (explainedCaller, error) {
	if p, ok := e.proxy(text); ok {
		return explainedCaller{id: p.Who.Identity, revoked: revokedOf(joined, p.Who.Serial)}, nil
	}
	if i := strings.LastIndexByte(text, '.'); i > 0 && !strings.Contains(text, "/") {
		if who, ok := workloadCalled(joined, text[i+1:]+"/"+text[:i]); ok {
			return who, nil
		}
		return explainedCaller{}, admin.NewError(admin.ErrInvalid, fmt.Sprintf(
			"no proxy %.200q is connected, and no workload of that name has joined: write the identity, shop/web, a proxy, web-1.shop, or anonymous", text))
	}
	id, err := authz.Caller(c, text)
	if err != nil {
		return explainedCaller{}, admin.NewError(admin.ErrInvalid, err.Error())
	}
	have := slices.DeleteFunc(slices.Clone(joined), func(w ca.Workload) bool { return w.Identity != id.String() })
	if len(have) == 0 {
		who, ok := workloadCalled(joined, text)
		if !ok {
			who.id, ok = e.identityNamed(c, text)
		}
		if ok {
			who.notes = append(who.notes, fmt.Sprintf("no workload has the identity %s: this is about the workload %s, "+
				"whose identity is %s", id, text, cmp.Or(who.id.String(), "none")))
			return who, nil
		}
	}
	if e.Workloads == nil || id == (spiffe.ID{}) {
		return explainedCaller{id: id}, nil
	}
	return ofIdentity(id, have), nil
}

// workloadCalled is the workload of a name, "shop/web".
func workloadCalled(joined []ca.Workload, name string) (explainedCaller, bool) {
	i := slices.IndexFunc(joined, func(w ca.Workload) bool { return w.Name == name })
	if i < 0 {
		return explainedCaller{}, false
	}
	id, err := spiffe.Parse(joined[i].Identity)
	return explainedCaller{id: id, revoked: revokedPart(joined[i])}, err == nil
}

// ofIdentity is a caller of an identity, which some workloads have: it is revoked when all of them
// are.
func ofIdentity(id spiffe.ID, have []ca.Workload) explainedCaller {
	out := explainedCaller{id: id}
	var in, left []string
	for _, w := range have {
		if part := revokedPart(w); part != "" {
			left, out.revoked = append(left, w.Name), part
		} else {
			in = append(in, w.Name)
		}
	}
	switch {
	case len(have) == 0:
		out.notes = []string{fmt.Sprintf("no workload that has joined has the identity %s: \"ashorectl workload list\" shows who has which", id)}
	case len(in) > 0 && len(left) > 0:
		out.revoked = ""
		out.notes = []string{fmt.Sprintf("of the workloads with this identity %s revoked and refused, and this is about the others: %s", areRevoked(left), strings.Join(in, ", "))}
	case len(left) > 1:
		out.revoked = "every workload with this identity (" + strings.Join(left, ", ") + ")"
	}
	return out
}

// areRevoked lists workloads with the verb that they take.
func areRevoked(names []string) string {
	if len(names) == 1 {
		return names[0] + " is"
	}
	return strings.Join(names, ", ") + " are"
}

// revokedPart is what of a workload is revoked so that it can show no certificate; empty: nothing.
func revokedPart(w ca.Workload) string {
	switch {
	case w.Revoked:
		return "the workload " + w.Name
	case len(w.Leaves) > 0 && w.Leaves[len(w.Leaves)-1].Revoked:
		return "the latest certificate of the workload " + w.Name
	}
	return ""
}

// revokedOf is what is revoked of the workload with a certificate.
func revokedOf(joined []ca.Workload, serial string) string {
	for _, w := range joined {
		for _, l := range w.Leaves {
			if l.Serial != serial {
				continue
			}
			if l.Revoked && !w.Revoked {
				return "the certificate of the workload " + w.Name
			}
			return revokedPart(w)
		}
	}
	return ""
}
