package agent

import (
	"errors"
	"fmt"
	"strings"
	"time"
)

func (a *Agent) reportIdentity(r *Report, now time.Time) {
	if a.keeper == nil {
		r.line("identity", stateOK, "", "none: this agent runs with --dev, in plaintext")
		r.line("certificate", stateOK, "", "none")
		r.line("roots", stateOK, "", "none")
		return
	}
	n := a.keeper.Renewal()
	reportKept(r, a.keeper.Identity(), a.keeper.Joined(), n, now)
	if rejected := a.secrets.Rejected(); rejected != "" {
		r.line("presented", stateBad, "restart this agent; if that does not help, join again",
			"Envoy rejects its certificate or the roots: %s", rejected)
	}
}

// reportKept adds three lines about an identity.
func reportKept(r *Report, id *Identity, j Joined, n Renewal, now time.Time) {
	leaf := id.Leaf()
	r.Identity, r.Serial, r.Ends = id.ID.String(), id.Serial(), leaf.NotAfter
	r.line("identity", stateOK, "", "%s, joined %s ago from the group %s", id.ID, span(now.Sub(j.At)), j.Group)
	left := leaf.NotAfter.Sub(now)
	ends, renewal := "ends in "+span(left), "renewed "+span(now.Sub(j.Renewed))+" ago"
	if left <= 0 {
		ends = "ended " + span(-left) + " ago"
	}
	if n.Trouble != nil {
		renewal = fmt.Sprintf("not renewed, tries %d: %s", n.Tries, oneLine(n.Trouble.Error()))
	} else if !n.Due.IsZero() {
		renewal += ", the next time in " + span(max(n.Due.Sub(now), 0))
	}
	state, todo := stateBad, ""
	switch {
	case id.rooted() != nil:
		renewal, todo = "its root is not one of the mesh any more; "+renewal, "join again"
	case now.Before(leaf.NotBefore):
		ends, todo = "begins in "+span(leaf.NotBefore.Sub(now))+" by this machine's clock", todoClock
	case n.refused():
		todo = "do what the answer says; or join again, by a new line of \"ashorectl join-token create\""
	case left <= 0:
		todo = "let the agent run and make a control plane reachable: it renews a certificate up to 7 days after its end, unless ca.grace there says otherwise; else join again"
	case n.Trouble != nil && left < id.Life()/4:
		todo = "make the control plane reachable before the certificate ends; or join again"
	case n.Trouble != nil:
		state = stateWarn
	default:
		state = stateOK
	}
	r.line("certificate", state, todo, "%s %s, %s", id.Serial(), ends, renewal)
	var hashes []string
	state, todo = stateOK, ""
	for _, c := range id.Roots {
		text := hashOf(c)[:len(hashPrefix)+12] + "…"
		if now.After(c.NotAfter) {
			text += " (ended)"
		} else if now.AddDate(0, 0, 30).After(c.NotAfter) {
			text += " (ends in " + span(c.NotAfter.Sub(now)) + ")"
			state, todo = stateWarn, "rotate the mesh's root: ashorectl ca rotate"
		}
		hashes = append(hashes, text)
	}
	r.line("roots", state, todo, "%d: %s", len(hashes), strings.Join(hashes, ", "))
}

// refused says that a control plane answered, and does not renew the certificate.
func (n Renewal) refused() bool {
	_, ok := errors.AsType[*RefusedError](n.Trouble)
	return ok
}

// reportNoIdentity adds three lines: there is none, and why.
func (r *Report) reportNoIdentity(why string) {
	r.line("identity", stateBad, "", "%s", why)
	r.line("certificate", stateBad, "", "none")
	r.line("roots", stateBad, "", "none")
}
