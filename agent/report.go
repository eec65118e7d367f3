package agent

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"os"
	"slices"
	"strings"
	"time"

	"google.golang.org/grpc/codes"
)

// Report is how an agent and its workload are: ten lines for people, and the same for programs.
type Report struct {
	// Well says that nothing is to be done.
	Well bool `json:"well"`
	// Lines are always the same ones in the same order.
	Lines []Line `json:"lines"`
	// Todo is what to do; empty: nothing.
	Todo []string `json:"todo,omitempty"`
	// PID is the agent's process; zero: none runs.
	PID int `json:"pid,omitempty"`
	// Identity, Serial and Ends are those of the certificate.
	Identity string    `json:"identity,omitempty"`
	Serial   string    `json:"serial,omitempty"`
	Ends     time.Time `json:"ends,omitzero"`
	// Link is the connection with the control planes.
	Link *LinkState `json:"link,omitempty"`
}

// Line is one subject.
type Line struct {
	Name string `json:"name"`
	// State is "ok", "warn" (it works, and will not for ever) or "bad".
	State string `json:"state"`
	Text  string `json:"text"`
}

// The states of a line.
const (
	stateOK   = "ok"
	stateWarn = "warn"
	stateBad  = "bad"
)

// say adds a line and, unless it is well, what to do.
func (r *Report) say(name, state, todo, format string, args ...any) {
	r.Lines = append(r.Lines, Line{name, state, oneLine(fmt.Sprintf(format, args...))})
	if state != stateOK && todo != "" {
		r.Todo = append(r.Todo, todo)
	}
}

// finish says whether all is well.
func (r *Report) finish() *Report {
	r.Well = true
	for _, l := range r.Lines {
		r.Well = r.Well && l.State == stateOK
	}
	return r
}

// Write writes the report for people: nine lines and what to do.
func (r *Report) Write(w io.Writer) error {
	var b strings.Builder
	for _, l := range r.Lines {
		fmt.Fprintf(&b, "%-14s %-4s  %s\n", l.Name, l.State, l.Text)
	}
	todo := "nothing"
	if len(r.Todo) > 0 {
		todo = strings.Join(r.Todo, "; ")
	}
	fmt.Fprintf(&b, "%-14s %-4s  %s\n", "to do", "", todo)
	_, err := io.WriteString(w, b.String())
	return err
}

// WriteJSON writes it for programs.
func (r *Report) WriteJSON(w io.Writer) error {
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	return e.Encode(r)
}

// Report looks at everything.
func (a *Agent) Report(ctx context.Context) *Report {
	now := time.Now()
	r := &Report{PID: os.Getpid()}
	a.sayIdentity(r, now)
	a.sayLink(r, now)
	a.sayEnvoy(ctx, r)
	a.sayConfiguration(r, now)
	a.sayRegistration(r)
	a.sayClock(r)
	sayDisk(r, a.settings.State)
	if r.Link != nil {
		r.once(r.Link.Trouble)
	}
	return r.finish()
}

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
	if refused := a.secrets.Refusal(); refused != "" {
		r.say("presented", stateBad, "restart this agent; if it goes on, join again", "Envoy refuses its certificate or the roots: %s", refused)
	} else if p := a.presented.State(); p.Alarm {
		r.say("presented", stateBad, "restart this agent: Envoy does not take the latest certificate", "Envoy presents the certificate %s, issued is %s", strings.Join(p.Serials, ", "), a.keeper.Identity().Serial())
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
		r.say("certificate", stateBad, "join again: run a new line of \"ashorectl join-token create\" here", "%s %s: its root is not one of the mesh any more", id.Serial(), because(n))
	case now.Before(leaf.NotBefore):
		r.say("certificate", stateBad, "set the clock (timedatectl, chrony)", "%s begins in %s by this machine's clock", id.Serial(), span(leaf.NotBefore.Sub(now)))
	case left <= 0 && n.Trouble == nil:
		r.say("certificate", stateBad, "let the agent run: it renews a certificate that has ended for as long as the control plane allows; else join again", "%s ended %s ago", id.Serial(), span(-left))
	case left <= 0 && !n.refused():
		r.say("certificate", stateBad, "the certificate renews by itself when a control plane answers, up to 7 days after its end unless ca.grace there says otherwise", "%s %s, ended %s ago", id.Serial(), because(n), span(-left))
	case left <= 0:
		r.say("certificate", stateBad, "join again: run a new line of \"ashorectl join-token create\" here", "%s %s, ended %s ago", id.Serial(), because(n), span(-left))
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
	return fmt.Sprintf("not renewed after %d tries: %s", n.Tries, oneLine(n.Trouble.Error()))
}

// refused says that a control plane answered, and does not renew the certificate.
func (n Renewal) refused() bool {
	_, ok := errors.AsType[*RefusedError](n.Trouble)
	return ok
}

func (a *Agent) sayLink(r *Report, now time.Time) {
	if a.link == nil {
		r.say(linkLine, stateOK, "", "%s, asked by Envoy itself", strings.Join(a.settings.XDS.Addresses, ", "))
		return
	}
	s := a.link.LinkState()
	r.Link = &s
	if s.Address != "" {
		r.say(linkLine, stateOK, "", "%s since %s ago", s.Address, span(now.Sub(s.Since)))
		return
	}
	r.say(linkLine, stateBad, linkTodo(s.Trouble, a.settings.XDS.Addresses), "none since %s: %s", span(now.Sub(s.Since)), s.Trouble)
}

// linkTodo is what helps against what is in the way to the control planes.
func linkTodo(trouble string, addresses []string) string {
	has := func(words ...string) bool {
		return slices.ContainsFunc(words, func(w string) bool { return strings.Contains(trouble, w) })
	}
	switch {
	case has(codes.Unauthenticated.String(), codes.PermissionDenied.String()):
		return "the control plane does not accept this workload: see \"ashorectl workload list\" and \"ashorectl audit tail\" there, or join again"
	case has("set the clock"):
		return "set the clock (timedatectl, chrony) of the machine whose clock is wrong"
	case has("is not believed"):
		return "see who answers at " + strings.Join(addresses, ", ") + "; when the mesh has a new root, join again"
	}
	return "make a control plane reachable: " + strings.Join(addresses, ", ")
}

func (a *Agent) sayEnvoy(ctx context.Context, r *Report) {
	info, infoErr := a.admin.serverInfo(ctx)
	readyErr := a.ready.check(ctx)
	restarts := max(a.supervisor.Runs()-1, 0)
	switch {
	case infoErr != nil && a.supervisor.Trouble() != "":
		r.say("envoy", stateBad, cmp.Or(portTodo(a.supervisor.Trouble()), "see Envoy's last error: "+a.path+" has to be Envoy for this machine, and its ports free"), "does not run, restarts %d: %s", restarts, a.supervisor.Trouble())
	case infoErr != nil:
		r.say("envoy", stateBad, "wait, and look again: Envoy starts", "does not answer yet: %v", infoErr)
	case readyErr != nil:
		r.say("envoy", stateBad, "", "process %d, version %s, restarts %d, not ready: %v", a.process.PID(), info.version(), restarts, readyErr)
		if l := r.Link; l == nil || l.Rejected == "" && (l.Trouble == "" || !strings.Contains(readyErr.Error(), l.Trouble)) { // else that is what to mend
			r.Todo = append(r.Todo, "see why Envoy is not ready")
		}
	default:
		r.say("envoy", stateOK, "", "process %d, version %s, restarts %d, ready", a.process.PID(), info.version(), restarts)
	}
}

func (a *Agent) sayConfiguration(r *Report, now time.Time) {
	if a.link == nil {
		r.say("configuration", stateOK, "", "live")
		return
	}
	switch s := a.link.LinkState(); {
	case s.Rejected != "":
		r.say("configuration", stateBad, cmp.Or(portTodo(s.Rejected), "see \"ashorectl status\": the control plane sends what this Envoy cannot use"), "Envoy refuses a part: %s", s.Rejected)
	case s.Old:
		r.say("configuration", stateBad, "make a control plane reachable: revocations and policies are not known here", "no control plane confirmed it since %s, %s ago", s.Confirmed.UTC().Format(time.RFC3339), span(now.Sub(s.Confirmed)))
	case s.CopyRefused != "" && s.Address == "":
		r.say("configuration", stateBad, "", "none: the copy on disk is not used: %s", s.CopyRefused)
	case s.CopyError != "":
		r.say("configuration", stateWarn, "make the state folder writable", "its copy cannot be written: %s", s.CopyError)
	case !s.CopyFrom.IsZero():
		r.say("configuration", stateWarn, "", "running on a copy from %s, %s ago", s.CopyFrom.UTC().Format(time.RFC3339), span(now.Sub(s.CopyFrom)))
	case s.Address == "" && s.Confirmed.IsZero():
		r.say("configuration", stateBad, "", "none: no control plane has answered since this agent started, and there is no copy on disk")
	case s.Address == "":
		r.say("configuration", stateWarn, "", "as it was %s ago, when the control plane went away", span(now.Sub(s.Since)))
	case a.cutter.Text() != "":
		r.say("configuration", stateOK, "", "live; %s", a.cutter.Text())
	default:
		r.say("configuration", stateOK, "", "live")
	}
}

func (a *Agent) sayRegistration(r *Report) {
	w := &a.settings.Workload
	if w.Group == "" || a.keeper == nil {
		r.say("registration", stateOK, "", "none: %s", strings.Join(w.Addresses, ", "))
		return
	}
	h, known := a.vitals.Health()
	switch {
	case !known:
		r.say("registration", stateWarn, "", "%s/%s at %s, not among the endpoints yet", w.Namespace, w.Group, w.Addresses[0])
	case strings.HasPrefix(h.Reason, proxyUnready): // its own line says what to do
		r.say("registration", stateBad, "", "%s/%s at %s, not among the endpoints: %s", w.Namespace, w.Group, w.Addresses[0], h.Reason)
	case !h.Healthy:
		r.say("registration", stateBad, "see why the workload is not well", "%s/%s at %s, not among the endpoints: %s", w.Namespace, w.Group, w.Addresses[0], h.Reason)
	case a.link.LinkState().Address == "":
		r.say("registration", stateWarn, "", "%s/%s at %s, well, but no control plane hears of it: it counts until its lease ends", w.Namespace, w.Group, w.Addresses[0])
	default:
		r.say("registration", stateOK, "", "%s/%s at %s, healthy", w.Namespace, w.Group, w.Addresses[0])
	}
}

// clockTolerance is how far a clock may be off before it is told.
const clockTolerance = time.Minute

func (a *Agent) sayClock(r *Report) {
	if a.keeper == nil {
		r.say("clock", stateOK, "", "not compared")
		return
	}
	n := a.keeper.Renewal()
	switch {
	case n.Skew.Abs() > clockTolerance:
		way := "ahead of"
		if n.Skew < 0 {
			way = "behind"
		}
		r.say("clock", stateWarn, "set the clock (timedatectl, chrony)", "%s %s the control plane's when the certificate came", span(n.Skew.Abs()), way)
	default:
		r.say("clock", stateOK, "", "within %s of the control plane's when the certificate came", clockTolerance)
	}
}

func sayDisk(r *Report, dir string) {
	free, err := room(dir)
	switch {
	case err != nil:
		r.say("disk", stateBad, "make the state folder usable", "%v", err)
	case free < littleRoom:
		r.say("disk", stateBad, "make room: certificates cannot be kept", "%s has %d KiB left", dir, free>>10)
	default:
		r.say("disk", stateOK, "", "%s has %d MiB left", dir, free>>20)
	}
}

// OfflineReport is that of a workload whose agent does not run.
func OfflineReport(state string) *Report {
	r := &Report{}
	now := time.Now()
	id, j, err := store{state}.load()
	todo := "start the agent: ashore-agent run --state " + state
	switch {
	case errors.Is(err, ErrNoIdentity):
		todo = "paste here the line that \"ashorectl join-token create\" prints on the control plane: it starts the agent too"
		r.sayNoIdentity("this workload has not joined the mesh, or with another state folder than " + state)
	case err != nil:
		todo = "join again: paste here a new line of \"ashorectl join-token create\", it starts the agent too"
		r.sayNoIdentity(err.Error())
	default:
		sayKept(r, id, j, Renewal{}, now)
	}
	const away = "the agent does not run"
	if f := lastFailure(state); f != nil {
		todo = "mend what ended the agent, and " + todo
		r.say("agent", stateBad, "", "it ended %s ago: %s", span(now.Sub(f.At)), f.Text)
	}
	for _, name := range []string{linkLine, "envoy", "configuration", "registration", "clock"} {
		r.say(name, stateBad, "", "%s", away)
	}
	r.Todo = append(r.Todo, todo)
	if _, err := os.Stat(state); errors.Is(err, fs.ErrNotExist) {
		r.say("disk", stateOK, "", "%s is not there yet", state)
	} else {
		sayDisk(r, state)
	}
	return r.finish()
}

// sayNoIdentity tells in three lines that there is none, and why.
func (r *Report) sayNoIdentity(why string) {
	r.say("identity", stateBad, "", "%s", why)
	r.say("certificate", stateBad, "", "none")
	r.say("roots", stateBad, "", "none")
}

// serverInfo is what Envoy says of itself.
type serverInfo struct {
	Version string `json:"version"`
	State   string `json:"state"`
}

// version is the release alone; the whole is "<commit>/1.40.0/Clean/RELEASE/BoringSSL".
func (i serverInfo) version() string {
	if parts := strings.Split(i.Version, "/"); len(parts) > 1 {
		return parts[1]
	}
	return i.Version
}

func (a *admin) serverInfo(ctx context.Context) (serverInfo, error) {
	var info serverInfo
	body, err := a.do(ctx, http.MethodGet, "/server_info")
	if err != nil {
		return info, err
	}
	if err := json.Unmarshal(body, &info); err != nil {
		return info, fmt.Errorf("read what Envoy says of itself: %w", err)
	}
	return info, nil
}
