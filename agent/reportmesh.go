package agent

import (
	"cmp"
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/ashore-mesh/ashore/registry"
)

func (a *Agent) reportLink(r *Report, now time.Time) {
	s := r.Link
	if s.Connected != "" {
		r.line(linkLine, stateOK, "", "%s since %s ago", s.Connected, span(now.Sub(s.Since)))
		return
	}
	r.line(linkLine, stateBad, "", "none since %s: %s", span(now.Sub(s.Since)), s.Trouble)
}

func (a *Agent) reportEnvoy(ctx context.Context, r *Report) {
	info, infoErr := a.admin.serverInfo(ctx)
	readyErr := a.ready.state()
	envoy := a.envoy.State()
	restarts, waiting := max(envoy.Runs-1, 0), ""
	if envoy.Waiting != "" {
		waiting = "; " + envoy.Waiting
	}
	switch {
	case infoErr != nil:
		r.line("envoy", stateBad, "see its log: "+a.path+" has to be Envoy for this machine, and its ports free",
			"does not answer, restarts %d: %s", restarts, cmp.Or(envoy.Trouble, infoErr.Error()))
	case readyErr != nil:
		r.line("envoy", stateBad, "", "process %d, version %s, restarts %d, not ready: %v", envoy.PID, info.version(),
			restarts, readyErr)
	case envoy.Outdated != "":
		r.line("envoy", stateWarn,
			"remove what is in the way and restart the agent; if that does not help, stop the unit "+envoy.Unit+", which cuts its connections",
			"process %d, version %s, runs with its previous program or settings: %s", envoy.PID, info.version(), envoy.Outdated)
	default:
		r.line("envoy", stateOK, "", "process %d, version %s, restarts %d, ready%s", envoy.PID, info.version(),
			restarts, waiting)
	}
}

func (a *Agent) reportConfiguration(r *Report, now time.Time) {
	s := r.Link
	at := s.Confirmed.UTC().Format(time.RFC3339) + ", " + span(now.Sub(s.Confirmed)) + " ago"
	switch {
	case len(s.Rejected) > 0:
		r.line("configuration", stateBad, "remove the cause, or correct the configuration (ashorectl status)",
			"Envoy refuses a part: %s", strings.Join(s.Rejected, "; "))
	case s.Old:
		r.line("configuration", stateBad, "",
			"no control plane confirmed it since %s: revocations and policies are not known here", at)
	case s.Connected == "" && s.CacheRefused != "" && s.Confirmed.IsZero():
		r.line("configuration", stateBad, "", "none: the copy on disk is not used: %s", s.CacheRefused)
	case s.Connected == "" && s.Confirmed.IsZero():
		r.line("configuration", stateBad,
			"", "none: no control plane has sent any since this agent started, and there is no copy on disk")
	case s.Connected == "":
		r.line("configuration", stateWarn, "", "running on a copy from %s", at)
	case s.CacheError != "":
		r.line("configuration", stateWarn, "make the state folder writable",
			"live; its copy cannot be written: %s", s.CacheError)
	default:
		r.line("configuration", stateOK, "", "live")
	}
}

func (a *Agent) reportRegistration(r *Report) {
	w := &a.settings.Workload
	if w.Group == "" {
		r.line("registration", stateOK, "", "none: %s", strings.Join(w.Addresses, ", "))
		return
	}
	where := fmt.Sprintf("%s/%s at %s", w.Namespace, w.Group, w.Addresses[0])
	probed, how := a.prober.State(), ""
	if probed.by != "" {
		how = "; " + probed.by
	}
	h, known := a.health.Health()
	if ports := h.Ports.In(registry.PortClosed, registry.PortLoopback); known && ports != "" {
		how += "; not served: " + ports
	}
	switch {
	case !known, h.Reason == notChecked, h.Reason == notIntercepted && a.settings.intercepted():
		r.line("registration", stateOK, "", "%s, not among the endpoints yet: its first check is not done", where)
	case !h.Healthy:
		r.line("registration", stateBad, "", "%s, not among the endpoints: %s%s", where, h.Reason, how)
	case r.Link.Connected == "":
		r.line("registration", stateWarn, "",
			"%s, not reported: no control plane is connected; an existing registration ends with its lease", where)
	case probed.refused != nil:
		r.line("registration", stateWarn, "",
			"%s, healthy by the previous probe: %v%s", where, probed.refused, cmp.Or(how, "; not probed"))
	default:
		r.line("registration", stateOK, "", "%s, healthy%s", where, how)
	}
}
