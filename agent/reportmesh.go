package agent

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"google.golang.org/grpc/codes"

	"github.com/ashore-mesh/ashore/registry"
)

func (a *Agent) reportLink(r *Report, now time.Time) {
	s := r.Link
	if s.Connected != "" {
		r.line(linkLine, stateOK, "", "%s since %s ago", s.Connected, span(now.Sub(s.Since)))
		return
	}
	r.line(linkLine, stateBad, linkTodo(s.Trouble, a.settings.XDS.Addresses), "none since %s: %s", span(now.Sub(s.Since)), s.Trouble)
}

// linkTodo is what helps against what is in the way to the control planes.
func linkTodo(trouble string, addresses []string) string {
	has := func(words ...string) bool {
		return slices.ContainsFunc(words, func(w string) bool { return strings.Contains(trouble, w) })
	}
	switch {
	case has(codes.Unauthenticated.String(), "registers nobody"):
		return acceptTodo(trouble)
	case has(codes.PermissionDenied.String(), codes.FailedPrecondition.String(), codes.InvalidArgument.String()):
		if todo := acceptTodo(trouble); todo != todoNotAccepted {
			return todo
		}
		return todoRefused
	case has(codes.ResourceExhausted.String()):
		return "see whether another program uses a copy of this workload's identity; if all is as it should be, raise the bound that is named at the control plane"
	case has("set the clock"):
		return "set the clock (timedatectl, chrony) of the machine whose clock is wrong"
	case has("is not trusted"):
		return "see who answers at " + strings.Join(addresses, ", ") + "; when the mesh has a new root, join again"
	}
	return "make a control plane reachable: " + strings.Join(addresses, ", ")
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
	case infoErr != nil && envoy.Trouble != "":
		r.line("envoy", stateBad, cmp.Or(portTodo(envoy.Trouble), "see Envoy's last error: "+a.path+" has to be Envoy for this machine, and its ports free"), "does not run, restarts %d: %s", restarts, envoy.Trouble)
	case infoErr != nil:
		r.line("envoy", stateBad, "wait, and look again: Envoy starts", "does not answer yet: %v", infoErr)
	case readyErr != nil:
		todo := ""
		if l := r.Link; len(l.Rejected) == 0 && (l.Trouble == "" || !strings.Contains(readyErr.Error(), l.Trouble)) { // else that is what to mend
			todo = "see why Envoy is not ready"
		}
		r.line("envoy", stateBad, todo, "process %d, version %s, restarts %d, not ready: %v", envoy.PID, info.version(), restarts, readyErr)
	case envoy.Outdated != "":
		r.line("envoy", stateWarn, "mend what is in the way and restart the agent; if that does not help, stop the unit "+envoy.Unit+", which cuts its connections",
			"process %d, version %s, runs with its former program or settings: %s", envoy.PID, info.version(), envoy.Outdated)
	default:
		r.line("envoy", stateOK, "", "process %d, version %s, restarts %d, ready%s", envoy.PID, info.version(), restarts, waiting)
	}
}

func (a *Agent) reportConfiguration(r *Report, now time.Time) {
	switch s := r.Link; {
	case len(s.Rejected) > 0:
		rejected := strings.Join(s.Rejected, "; ")
		r.line("configuration", stateBad, cmp.Or(portTodo(rejected), "see \"ashorectl status\": the control plane sends what this Envoy cannot use"), "Envoy refuses a part: %s", rejected)
	case s.Old:
		r.line("configuration", stateBad, linkTodo(s.Trouble, a.settings.XDS.Addresses),
			"no control plane confirmed it since %s, %s ago: revocations and policies are not known here",
			s.Confirmed.UTC().Format(time.RFC3339), span(now.Sub(s.Confirmed)))
	case s.CacheRefused != "" && s.Connected == "":
		r.line("configuration", stateBad, "", "none: the copy on disk is not used: %s", s.CacheRefused)
	case s.CacheError != "":
		r.line("configuration", stateWarn, "make the state folder writable", "its copy cannot be written: %s", s.CacheError)
	case !s.CachedAt.IsZero():
		r.line("configuration", stateWarn, "", "running on a copy from %s, %s ago", s.CachedAt.UTC().Format(time.RFC3339), span(now.Sub(s.CachedAt)))
	case s.Connected == "" && s.Confirmed.IsZero():
		r.line("configuration", stateBad, "", "none: no control plane has sent any since this agent started, and there is no copy on disk")
	case s.Connected == "":
		r.line("configuration", stateWarn, "", "as it was %s ago, when the stream to the control plane ended", span(now.Sub(s.Since)))
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
	case probed.refused != nil && h.Reason == probed.refused.Error():
		r.line("registration", stateBad, probed.refused.todo, "%s, not among the endpoints: %s%s", where, probeRefused, probed.refused.why)
	case strings.HasPrefix(h.Reason, proxyUnready), h.Reason == notIntercepted: // their own lines say what to do
		r.line("registration", stateBad, "", "%s, not among the endpoints: %s", where, h.Reason)
	case !h.Healthy:
		r.line("registration", stateBad, "see why the workload is not well", "%s, not among the endpoints: %s%s", where, h.Reason, how)
	case r.Link.Connected == "":
		r.line("registration", stateWarn, "", "%s, well, but no control plane hears of it: if it was registered, it counts until its lease ends", where)
	case probed.refused != nil:
		r.line("registration", stateWarn, probed.refused.todo, "%s, healthy by the former probe: %s%s%s", where, probeRefused, probed.refused.why, cmp.Or(how, "; not probed"))
	default:
		r.line("registration", stateOK, "", "%s, healthy%s", where, how)
	}
}
