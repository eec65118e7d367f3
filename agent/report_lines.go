package agent

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/ashore-mesh/ashore/agent/envoy"
	"github.com/ashore-mesh/ashore/ca"
	"github.com/ashore-mesh/ashore/registry"
)

// reportIdentity adds three lines about an identity.
func reportIdentity(r *Report, id *Identity, j Joined, n Renewal, now time.Time) {
	leaf := id.Leaf()
	r.Identity, r.Serial, r.Ends = id.ID.String(), id.Serial(), leaf.NotAfter
	from := ""
	if j.Group != "" {
		from = " from the group " + j.Group
	}
	r.ok("identity", "%s, joined %s ago%s", id.ID, span(now.Sub(j.At)), from)
	left := leaf.NotAfter.Sub(now)
	ends, renewal := "ends in "+span(left), "renewed "+span(now.Sub(j.Renewed))+" ago"
	if left <= 0 {
		ends = "ended " + span(-left) + " ago"
	}
	if n.Err != nil {
		renewal = fmt.Sprintf("not renewed, tries %d: %v", n.Tries, n.Err)
	} else if !n.Due.IsZero() {
		renewal += ", the next time in " + span(max(n.Due.Sub(now), 0))
	}
	_, refused := errors.AsType[*RefusedError](n.Err)
	state, todo := stateBad, ""
	switch {
	case id.rooted() != nil:
		renewal, todo = "its root is not one of the mesh any more; "+renewal, "join again"
	case now.Before(leaf.NotBefore):
		ends, todo = "begins in "+span(leaf.NotBefore.Sub(now))+" by this machine's clock", todoClock
	case refused:
		todo = "do what the answer says; or join again"
	case left <= 0:
		todo = "let the agent run and make a control plane reachable: it renews a certificate up to 7 days after its end, " +
			"unless ca.grace there says otherwise; else join again"
	case n.Err != nil && left < leaf.NotAfter.Sub(leaf.NotBefore)/4:
		todo = "make the control plane reachable before the certificate ends; or join again"
	case n.Err != nil:
		state = stateWarn
	default:
		state = stateOK
	}
	r.line("certificate", state, todo, "%s %s, %s", id.Serial(), ends, renewal)
	var hashes []string
	for _, c := range id.Roots.Roots {
		hashes = append(hashes, ca.RootID(c)[:len(hashPrefix)+12]+"…")
	}
	r.ok("roots", "%d: %s", len(hashes), strings.Join(hashes, ", "))
}

func (a *Agent) reportEnvoy(ctx context.Context, r *Report) {
	info, infoErr := a.admin.ServerInfo(ctx)
	release := envoy.Release(info.GetVersion())
	readyErr := a.health.ready()
	state := a.envoy.State()
	restarts, waiting := max(state.Runs-1, 0), ""
	if state.Waiting != "" {
		waiting = "; " + state.Waiting
	}
	switch {
	case infoErr != nil:
		r.bad("envoy", "see its log: "+a.path+" has to be Envoy for this machine, and its ports free",
			"does not answer, restarts %d: %s", restarts, cmp.Or(state.Problem, infoErr.Error()))
	case readyErr != nil:
		r.bad("envoy", "", "process %d, version %s, restarts %d, not ready: %v", state.PID, release,
			restarts, readyErr)
	case state.Outdated != "":
		r.warn("envoy", "remove what is in the way and restart the agent; if that does not help, stop the unit "+
			state.Unit+", which cuts its connections",
			"process %d, version %s, runs with its previous program or settings: %s", state.PID, release, state.Outdated)
	default:
		r.ok("envoy", "process %d, version %s, restarts %d, ready%s", state.PID, release,
			restarts, waiting)
	}
}

func reportConfiguration(r *Report, now time.Time) {
	s := r.Link
	at := s.Confirmed.UTC().Format(time.RFC3339) + ", " + span(now.Sub(s.Confirmed)) + " ago"
	switch {
	case len(s.Rejected) > 0:
		r.bad("configuration", "remove the cause, or correct the configuration (ashorectl status)",
			"Envoy refuses a part: %s", strings.Join(s.Rejected, "; "))
	case s.Connected == "" && s.CacheRefused != "" && s.Confirmed.IsZero():
		r.bad("configuration", "", "none: the copy on disk is not used: %s", s.CacheRefused)
	case s.Connected == "" && s.Confirmed.IsZero():
		r.bad("configuration", "", "none: no control plane has sent any since this agent started, and there is no copy "+
			"on disk")
	case s.Connected == "":
		r.warn("configuration", "", "running on a copy from %s: changes and revocations since then are not known here", at)
	case s.CacheError != "":
		r.warn("configuration", "make the state folder writable",
			"live; its copy cannot be written: %s", s.CacheError)
	default:
		r.ok("configuration", "live")
	}
}

func (a *Agent) reportRegistration(r *Report) {
	w := &a.settings.Workload
	if w.Group == "" {
		r.ok("registration", "none: %s", strings.Join(w.Addresses, ", "))
		return
	}
	where := fmt.Sprintf("%s/%s at %s", w.Namespace, w.Group, w.Addresses[0])
	probed, how := a.prober.State(), ""
	if probed.By != "" {
		how = "; " + probed.By
	}
	h, known := a.health.Health()
	closed := h.Ports.In(registry.PortClosed, registry.PortLoopback)
	if known && closed != "" {
		how += "; not served: " + closed
	}
	switch {
	case !known, h.Reason == notChecked, h.Reason == notIntercepted && a.settings.intercepted():
		r.ok("registration", "%s, not among the endpoints yet: its first check is not done", where)
	case h.Reason != "":
		r.bad("registration", "", "%s, not among the endpoints: %s%s", where, h.Reason, how)
	case r.Link.Connected == "":
		r.warn("registration", "",
			"%s, not reported: no control plane is connected; an existing registration ends with its lease", where)
	case probed.Refused != nil:
		r.warn("registration", "",
			"%s, healthy by the previous probe: %v%s", where, probed.Refused, cmp.Or(how, "; not probed"))
	case closed != "":
		r.warn("registration", "start what serves these ports", "%s, healthy%s", where, how)
	default:
		r.ok("registration", "%s, healthy%s", where, how)
	}
}
