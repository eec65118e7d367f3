package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/ashore-mesh/ashore/agent"
	"github.com/ashore-mesh/ashore/internal/build"
	"github.com/ashore-mesh/ashore/internal/machine"
)

// errNotWell is that a status shows something to do: exit code 1, and nothing more to say.
var errNotWell = errors.New("")

func statusCommand(h *host, stdout io.Writer) *cobra.Command {
	var p place
	var output string
	cmd := &cobra.Command{
		Use:   "status",
		Short: "Show what is well and what is not, and what to do",
		Long:  "status shows how the workloads of this machine are: identity, agent, Envoy, units. Exit code 0: all is well; 1: something is to be done.",
		Example: "  ashore-agent status\n  ashore-agent status --state /var/lib/ashore-agent/web-1.shop -o json" +
			"\n\n  # of an agent that runs with --dev\n  ashore-agent status --state ~/.cache/ashore-agent/web-1.shop",
		Args: noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if output != "text" && output != "json" {
				return usage(fmt.Errorf("--output %q is not known; want text or json", output))
			}
			states, err := p.folders()
			if err != nil {
				return err
			}
			return printStatus(cmd.Context(), h, stdout, states, output)
		},
	}
	p.add(cmd)
	cmd.Flags().StringVarP(&output, "output", "o", "text", "`text` or json")
	return cmd
}

// printStatus prints the reports of state folders; JSON of several is a list.
func printStatus(ctx context.Context, h *host, w io.Writer, states []string, output string) error {
	var reports []*agent.Report
	well := true
	for _, state := range states {
		r, err := agent.Status(ctx, state)
		if err != nil {
			return err
		}
		if err := reportHost(ctx, h, r, state); err != nil {
			return err
		}
		reports, well = append(reports, r), well && r.Well
	}
	if err := writeReports(w, states, reports, output); err != nil {
		return err
	}
	if !well {
		return errNotWell
	}
	return nil
}

func writeReports(w io.Writer, states []string, reports []*agent.Report, output string) error {
	if output == "json" {
		if len(reports) == 1 {
			return reports[0].WriteJSON(w)
		}
		e := json.NewEncoder(w)
		e.SetIndent("", "  ")
		return e.Encode(reports)
	}
	for i, r := range reports {
		if len(reports) > 1 {
			if _, err := fmt.Fprintf(w, "%s:\n", filepath.Base(states[i])); err != nil {
				return err
			}
		}
		if err := r.Write(w); err != nil {
			return err
		}
	}
	return nil
}

// reportHost adds what the agent of a state folder cannot know: whether it runs the installed
// program, and its units.
func reportHost(ctx context.Context, h *host, r *agent.Report, state string) error {
	if installed := build.Read().String(); r.Version != "" && r.Version != installed {
		r.Add("version", false, "restart the agent: systemctl restart ashore-agent",
			"the agent runs "+r.Version+", installed is "+installed)
	}
	if h == nil && filepath.Dir(state) == agent.PackagedState && machine.HasSystemd() {
		h = &host{folder: agent.PackagedState, systemd: machine.Systemctl("systemctl")} // the agent's user may look
	}
	if !h.runs(state) {
		return nil
	}
	s, err := agent.KeptSettings(state)
	if err != nil {
		return err
	}
	return h.reportUnits(ctx, r, state, s.Workload.Interception == "tproxy")
}

// reportUnits adds a line about the units of a workload.
func (h *host) reportUnits(ctx context.Context, r *agent.Report, state string, intercepted bool) error {
	names := []string{h.unit(state)}
	if intercepted {
		names = append(names, interceptUnit)
	}
	units, err := h.systemd.Show(ctx, names...)
	if err != nil {
		return err
	}
	var texts, todos []string
	if intercepted && h.rules != nil {
		if rules, err := h.rules.Status(ctx); err != nil {
			return err
		} else if !rules.Installed {
			texts, todos = append(texts, "the rules that bring traffic to Envoy are not installed"), append(todos,
				"ashore-agent intercept install")
		}
	}
	for _, u := range units {
		texts = append(texts, u.String())
		if u.Active != "active" || u.File != "enabled" {
			todos = append(todos, fmt.Sprintf("systemctl enable --now %s (journalctl -u %s says why it does not run)",
				u.Name, u.Name))
		}
	}
	r.Add("units", len(todos) == 0, strings.Join(todos, "; "), strings.Join(texts, "; "))
	return nil
}
