package main

import (
	"fmt"

	"github.com/ashore-mesh/ashore/ca"
	"github.com/ashore-mesh/ashore/internal/admin"
	"github.com/ashore-mesh/ashore/internal/spiffe"
	"github.com/ashore-mesh/ashore/registry"
	"github.com/ashore-mesh/ashore/xds"
)

// hearing is who hears of a revocation, or of its end.
type hearing struct {
	// here are the proxies that are connected to this replica, and there those known to be
	// connected to others.
	here, there int
	// others are the other replicas that are alive.
	others int
	// alone says that the others are not told, for the store has not taken it.
	alone bool
	// lost says that the store was lost.
	lost bool
}

// told is an answer with how many proxies hear of what it is about, and which of the workloads that
// are known hear of it later. Who is revoked is none of them: its stream ends. alone says that the
// other replicas do not know it.
func (o operators) told(out admin.Revoked, known []ca.Workload, alone bool) admin.Revoked {
	h := hearing{others: o.otherReplicas(), alone: alone, lost: o.ledger.Lost()}
	if server := o.fleet.Load(); server != nil {
		h.here = server.Count(func(p xds.Peer) bool {
			return p.Identity == (spiffe.ID{}) || o.revoked(p.Identity, p.Fingerprint()) == nil
		})
		h.there = server.Elsewhere(func(r *registry.Registration) bool {
			who, err := spiffe.Parse(r.Identity)
			return err != nil || o.revoked(who, r.Certificate) == nil
		})
	}
	out.Proxies = h.here
	if !alone {
		out.Proxies += h.there
	}
	out.Notes = append(out.Notes, h.String())
	if text := o.away(known); text != "" {
		out.Notes = append(out.Notes, text)
	}
	return out
}

// otherReplicas is how many replicas are alive but this one.
func (id *identity) otherReplicas() int {
	if m := id.members.Load(); m != nil {
		return (*m).Replicas() - 1
	}
	return 0
}

// String says it to who asked for the revocation.
func (h hearing) String() string {
	where, others := "", ""
	if h.others+h.there > 0 {
		where = " to this replica"
		switch {
		case h.alone:
			others = "; the other replicas know nothing of it before the store has it"
		case h.there > 0:
			others = fmt.Sprintf("; %s to other replicas, which tell theirs", connected(h.there))
		}
	}
	switch {
	case h.here == 1:
		return connected(1) + where + " and hears of it" + others
	case h.here > 1:
		return connected(h.here) + where + " and hear of it" + others
	case h.there > 0 && !h.alone:
		return connected(0) + where + others
	}
	text := "WARNING: " + connected(0) + where + " that could be told: nobody hears of it until one connects, and each goes on with what it has until then"
	if where != "" && !h.alone {
		text = "WARNING: " + connected(0) + where + ", and none that registered to another one: nobody may hear of it until one connects, and each goes on with what it has until then"
	}
	text += others + ". \"ashorectl status\" shows who is connected, \"ashorectl problems\" and \"ashorectl audit tail\" why somebody is refused"
	if h.lost {
		text += "; who joined before the store was lost has to join again"
	}
	return text
}

// connected is so many proxies that are.
func connected(proxies int) string {
	switch proxies {
	case 0:
		return "no proxy is connected"
	case 1:
		return "1 proxy is connected"
	}
	return fmt.Sprintf("%d proxies are connected", proxies)
}
