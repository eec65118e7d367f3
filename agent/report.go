package agent

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/ashore-mesh/ashore/agent/relay"
	"github.com/ashore-mesh/ashore/internal/build"
)

// Report is the status of an agent and its workload.
type Report struct {
	// Well says that every line is ok.
	Well bool `json:"well"`
	// Lines are one for each subject, in a fixed order. Subjects that do not concern the workload
	// have none.
	Lines []Line `json:"lines"`
	// PID is the agent's process; zero: no agent runs.
	PID int `json:"pid,omitempty"`
	// Version is that of the agent's program; empty: no agent runs.
	Version string `json:"version,omitempty"`
	// Identity, Serial and Ends are the certificate's.
	Identity string    `json:"identity,omitempty"`
	Serial   string    `json:"serial,omitempty"`
	Ends     time.Time `json:"ends,omitzero"`
	// Link is the connection to the control planes.
	Link *relay.Status `json:"link,omitempty"`
}

// Line is the status of one subject.
type Line struct {
	Name string `json:"name"`
	// State is "ok", "warn" (it works for now) or "bad".
	State string `json:"state"`
	Text  string `json:"text"`
	// Todo is the remedy; empty: there is none, or another line has it.
	Todo string `json:"todo,omitempty"`
}

// The states of a line.
const (
	stateOK   = "ok"
	stateWarn = "warn"
	stateBad  = "bad"
)

func (r *Report) ok(name, format string, args ...any) { r.line(name, stateOK, "", format, args...) }

func (r *Report) warn(name, todo, format string, args ...any) {
	r.line(name, stateWarn, todo, format, args...)
}

func (r *Report) bad(name, todo, format string, args ...any) {
	r.line(name, stateBad, todo, format, args...)
}

// line adds a line.
func (r *Report) line(name, state, todo, format string, args ...any) {
	lines := strings.FieldsFunc(fmt.Sprintf(format, args...), func(c rune) bool { return c == '\n' })
	r.Lines = append(r.Lines, Line{name, state, strings.Join(lines, "; "), todo})
	r.Well = !slices.ContainsFunc(r.Lines, func(l Line) bool { return l.State != stateOK })
}

// Add adds a line: it is "bad" if there is a todo, else "ok".
func (r *Report) Add(name, todo, text string) {
	if todo == "" {
		r.ok(name, "%s", text)
	} else {
		r.bad(name, todo, "%s", text)
	}
}

// Write writes the report for people: a line for each subject, followed by its remedy.
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

// Report returns the current status.
func (a *Agent) Report(ctx context.Context) *Report { return a.report(ctx, a.relay.Status()) }

// report is Report with a given state of the connection to the control planes.
func (a *Agent) report(ctx context.Context, link relay.Status) *Report {
	now := time.Now()
	r := &Report{PID: os.Getpid(), Link: &link, Version: build.Read().String()}
	if a.certs == nil {
		r.ok("identity", "none: this agent runs with --dev, in plaintext")
	} else {
		reportIdentity(r, a.certs.Identity(), a.certs.Joined(), a.certs.Renewal(), now)
	}
	r.ok("agent", "process %d, version %s", r.PID, r.Version)
	if link.Connected != "" {
		r.ok(linkLine, "%s since %s ago", link.Connected, span(now.Sub(link.Since)))
	} else {
		r.bad(linkLine, "", "none since %s: %s", span(now.Sub(link.Since)), link.Problem)
	}
	a.reportEnvoy(ctx, r)
	a.reportInterception(r)
	a.reportDNS(r)
	reportConfiguration(r, now)
	a.reportRegistration(r)
	reportDisk(r, a.settings.State)
	return r
}

// linkLine is the line about the connection to the control planes.
const linkLine = "control plane"

// todoClock is the remedy for a wrong clock.
const todoClock = "set the clock (timedatectl, chrony)"

func reportDisk(r *Report, dir string) {
	free, err := freeSpace(dir)
	switch {
	case err != nil:
		r.bad("disk", "make the state folder usable", "%v", err)
	case free < lowSpace:
		r.bad("disk", "make room: certificates cannot be kept", "%s has %d KiB left", dir, free>>10)
	default:
		r.ok("disk", "%s has %d MiB left", dir, free>>20)
	}
}

// joinLine says which line joins a machine.
const joinLine = "of \"ashorectl join-token create\" on the control plane: it starts the agent too"

// startRemedy says how to start the agent of a state folder.
func startRemedy(state string) string {
	if filepath.Dir(state) == PackagedState { // the package may have been removed and installed again
		return "systemctl start ashore-agent, or paste here again the line " + joinLine
	}
	return "start the agent: ashore-agent run --state " + state
}

// OfflineReport is the report of a workload whose agent does not run.
func OfflineReport(state string) *Report {
	r := &Report{}
	id, j, err := store{state}.load()
	todo := startRemedy(state)
	switch {
	case errors.Is(err, ErrNoIdentity):
		todo = "paste here the line " + joinLine
		r.bad("identity", "", "this workload has not joined the mesh, or with another state folder than %s", state)
	case err != nil:
		todo = "join again: paste here a new line " + joinLine
		r.bad("identity", "", "%v", err)
	default:
		reportIdentity(r, id, j, Renewal{}, time.Now())
	}
	r.bad("agent", todo, "the agent does not run; its log says why (journalctl -u 'ashore-agent*')")
	if _, err := os.Stat(state); !errors.Is(err, fs.ErrNotExist) {
		reportDisk(r, state)
	}
	return r
}
