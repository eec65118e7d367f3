package agent

import (
	"errors"
	"fmt"
	"strings"
	"time"
)

func (a *Agent) sayIdentity(r *Report, now time.Time) {
	if a.keeper == nil {
		r.say("identity", stateOK, "", "none: this agent runs with --dev, in plaintext")
		r.say("certificate", stateOK, "", "none")
		r.say("roots", stateOK, "", "none")
		return
	}
	n := a.keeper.Renewal()
	n.Trouble = referring(n.Trouble, a.link.LinkState().Trouble)
	sayKept(r, a.keeper.Identity(), a.keeper.Joined(), n, now)
	if rejected := a.secrets.Rejected(); rejected != "" {
		r.say("presented", stateBad, "restart this agent; if that does not help, join again", "Envoy rejects its certificate or the roots: %s", rejected)
	}
}

// sayKept tells of an identity: three lines.
func sayKept(r *Report, id *Identity, j Joined, n Renewal, now time.Time) {
	leaf := id.Leaf()
	r.Identity, r.Serial, r.Ends = id.ID.String(), id.Serial(), leaf.NotAfter
	r.say("identity", stateOK, "", "%s, joined %s ago from the group %s", id.ID, span(now.Sub(j.At)), j.Group)
	left := leaf.NotAfter.Sub(now)
	orphan := id.rooted()
	switch {
	case orphan != nil:
		r.say("certificate", stateBad, todoJoin, "%s %s: its root is not one of the mesh any more", id.Serial(), because(n))
	case now.Before(leaf.NotBefore):
		r.say("certificate", stateBad, todoClock, "%s begins in %s by this machine's clock", id.Serial(), span(leaf.NotBefore.Sub(now)))
	case left <= 0 && n.Trouble == nil:
		r.say("certificate", stateBad, "let the agent run: it renews a certificate that has ended for as long as the control plane allows; else join again", "%s ended %s ago", id.Serial(), span(-left))
	case left <= 0 && !n.refused():
		r.say("certificate", stateBad, "the certificate renews by itself when a control plane answers, up to 7 days after its end unless ca.grace there says otherwise", "%s %s, ended %s ago", id.Serial(), because(n), span(-left))
	case left <= 0:
		r.say("certificate", stateBad, todoJoin, "%s %s, ended %s ago", id.Serial(), because(n), span(-left))
	case n.refused():
		r.say("certificate", stateBad, refusedTodo(n.Trouble), "%s %s, ends in %s", id.Serial(), because(n), span(left))
	case n.Trouble != nil && left < id.Life()/4:
		r.say("certificate", stateBad, "make the control plane reachable before the certificate ends; or join again", "%s %s, ends in %s", id.Serial(), because(n), span(left))
	case n.Trouble != nil:
		r.say("certificate", stateWarn, "nothing yet: renewing is tried again by itself", "%s %s, ends in %s", id.Serial(), because(n), span(left))
	case n.Due.IsZero():
		r.say("certificate", stateOK, "", "%s ends in %s, renewed %s ago", id.Serial(), span(left), span(now.Sub(j.Renewed)))
	default:
		r.say("certificate", stateOK, "", "%s ends in %s, renewed %s ago, the next time in %s", id.Serial(), span(left), span(now.Sub(j.Renewed)), span(max(n.Due.Sub(now), 0)))
	}
	var hashes []string
	state, todo := stateOK, ""
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
	r.say("roots", state, todo, "%d: %s", len(hashes), strings.Join(hashes, ", "))
}

func because(n Renewal) string {
	if n.Trouble == nil {
		return "not renewed"
	}
	tries := "1 try"
	if n.Tries != 1 {
		tries = fmt.Sprintf("%d tries", n.Tries)
	}
	return fmt.Sprintf("not renewed after %s: %s", tries, oneLine(n.Trouble.Error()))
}

// refused says that a control plane answered, and does not renew the certificate.
func (n Renewal) refused() bool {
	_, ok := errors.AsType[*RefusedError](n.Trouble)
	return ok
}

// sayNoIdentity tells in three lines that there is none, and why.
func (r *Report) sayNoIdentity(why string) {
	r.say("identity", stateBad, "", "%s", why)
	r.say("certificate", stateBad, "", "none")
	r.say("roots", stateBad, "", "none")
}
