package agent

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strings"
	"time"

	"github.com/ashore-mesh/ashore/agent/relay"
	"github.com/ashore-mesh/ashore/internal/build"
)

// Report is how an agent and its workload are: some ten lines for people, and the same for
// programs.
type Report struct {
	// Well says that nothing is to be done.
	Well bool `json:"well"`
	// Lines are always the same ones in the same order, but for those of what not every workload
	// has, or what is seldom wrong.
	Lines []Line `json:"lines"`
	// Todo is what to do; empty: nothing.
	Todo []string `json:"todo,omitempty"`
	// PID is the agent's process; zero: none runs.
	PID int `json:"pid,omitempty"`
	// Version is that of the agent's program; empty: none runs.
	Version string `json:"version,omitempty"`
	// Identity, Serial and Ends are those of the certificate.
	Identity string    `json:"identity,omitempty"`
	Serial   string    `json:"serial,omitempty"`
	Ends     time.Time `json:"ends,omitzero"`
	// Link is the connection with the control planes.
	Link *relay.Status `json:"link,omitempty"`
}

// Line is one subject.
type Line struct {
	Name string `json:"name"`
	// State is "ok", "warn" (it works, and will not for ever) or "bad".
	State string `json:"state"`
	Text  string `json:"text"`
	// Todo is what to do; empty: nothing, or another line says it.
	Todo string `json:"todo,omitempty"`
}

// The states of a line.
const (
	stateOK   = "ok"
	stateWarn = "warn"
	stateBad  = "bad"
)

// line adds a line and, unless it is well, what to do.
func (r *Report) line(name, state, todo, format string, args ...any) {
	if state == stateOK {
		todo = ""
	}
	r.Lines = append(r.Lines, Line{name, state, oneLine(fmt.Sprintf(format, args...)), todo})
	if todo != "" {
		r.Todo = append(r.Todo, todo)
	}
}

// Add adds a line about the machine, with what to do unless it is well.
func (r *Report) Add(name string, well bool, todo, text string) {
	state := stateOK
	if !well {
		state = stateBad
	}
	r.line(name, state, todo, "%s", text)
	r.finish()
}

// finish says whether all is well.
func (r *Report) finish() *Report {
	r.Well = true
	for _, l := range r.Lines {
		r.Well = r.Well && l.State == stateOK
	}
	return r
}

// Write writes the report for people: a line for each subject, and below those that are not well
// what to do.
func (r *Report) Write(w io.Writer) error {
	var b strings.Builder
	for _, l := range r.Lines {
		fmt.Fprintf(&b, "%-14s %-4s  %s\n", l.Name, l.State, l.Text)
		if l.Todo != "" {
			fmt.Fprintf(&b, "%-14s %-4s  %s\n", "", "fix:", l.Todo)
		}
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// WriteJSON writes it for programs.
func (r *Report) WriteJSON(w io.Writer) error {
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	return e.Encode(r)
}

// Report returns the status of everything.
func (a *Agent) Report(ctx context.Context) *Report { return a.report(ctx, a.relay.Status()) }

// report is Report with this connection to the control planes.
func (a *Agent) report(ctx context.Context, link relay.Status) *Report {
	now := time.Now()
	r := &Report{PID: os.Getpid(), Link: &link}
	a.reportIdentity(r, now)
	r.Version = build.Read().String()
	r.line("agent", stateOK, "", "process %d, version %s", r.PID, r.Version)
	a.reportLink(r, now)
	a.reportEnvoy(ctx, r)
	a.reportInterception(r)
	a.reportDNS(r)
	a.reportConfiguration(r, now)
	a.reportRegistration(r)
	a.reportClock(r)
	reportDisk(r, a.settings.State)
	return r.finish()
}

// clockTolerance is how far a clock may be off without a warning.
const clockTolerance = backdate

// todoClock is what to do about a clock that is wrong.
const todoClock = "set the clock (timedatectl, chrony)"

func (a *Agent) reportClock(r *Report) {
	if a.keeper == nil {
		r.line("clock", stateOK, "", "not compared")
		return
	}
	n := a.keeper.Renewal()
	switch {
	case n.Skew.Abs() > clockTolerance:
		way := "ahead of"
		if n.Skew < 0 {
			way = "behind"
		}
		r.line("clock", stateWarn, todoClock, "%s %s the control plane's when the certificate came", span(n.Skew.Abs()),
			way)
	default:
		r.line("clock", stateOK, "", "within %s of the control plane's when the certificate came", clockTolerance)
	}
}

func reportDisk(r *Report, dir string) {
	free, err := room(dir)
	switch {
	case err != nil:
		r.line("disk", stateBad, "make the state folder usable", "%v", err)
	case free < littleRoom:
		r.line("disk", stateBad, "make room: certificates cannot be kept", "%s has %d KiB left", dir, free>>10)
	default:
		r.line("disk", stateOK, "", "%s has %d MiB left", dir, free>>20)
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
		r.reportNoIdentity("this workload has not joined the mesh, or with another state folder than " + state)
	case err != nil:
		todo = "join again: paste here a new line of \"ashorectl join-token create\", it starts the agent too"
		r.reportNoIdentity(err.Error())
	default:
		reportKept(r, id, j, Renewal{}, now)
	}
	r.line("agent", stateBad, todo, "the agent does not run; its log says why (journalctl -u 'ashore-agent*')")
	for _, name := range []string{linkLine, "envoy", "configuration", "registration", "clock"} {
		r.line(name, stateBad, "", "the agent does not run")
	}
	if _, err := os.Stat(state); errors.Is(err, fs.ErrNotExist) {
		r.line("disk", stateOK, "", "%s is not there yet", state)
	} else {
		reportDisk(r, state)
	}
	return r.finish()
}
