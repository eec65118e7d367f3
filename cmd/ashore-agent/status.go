package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/ashore-mesh/ashore/agent"
)

// errNotWell is that a status shows something to do: exit code 1, and nothing more to say.
var errNotWell = errors.New("")

const statusLong = `status shows the state of the workloads of this machine: identity, agent, Envoy, units.
Exit code 0: everything works; 1: something has to be done.`

const statusExample = `  ashore-agent status
  ashore-agent status --state /var/lib/ashore-agent/web-1.shop -o json

  # of an agent that runs with --dev
  ashore-agent status --state ~/.cache/ashore-agent/web-1.shop`

func (p *program) statusCommand() *cobra.Command {
	var state, output string
	cmd := command("status", "Show the state of all parts, and what to do", statusLong, statusExample,
		func(ctx context.Context) error {
			if output != "text" && output != "json" {
				return usage(fmt.Errorf("--output %q is not known; want text or json", output))
			}
			states, err := stateFolders(state)
			if err != nil {
				return err
			}
			return p.status(ctx, states, output)
		})
	stateFlag(cmd, &state)
	cmd.Flags().StringVarP(&output, "output", "o", "text", "`text` or json")
	return cmd
}

// stateFolders returns the state folder that a flag names, or those of all workloads that have joined.
func stateFolders(flag string) ([]string, error) {
	if flag != "" {
		return []string{flag}, nil
	}
	state, all, err := agent.FindJoined()
	if len(all) > 1 {
		return all, nil
	}
	return []string{state}, err
}

// status prints the reports of state folders; JSON of several is a list.
func (p *program) status(ctx context.Context, states []string, output string) error {
	var reports []*agent.Report
	var failed error
	for _, state := range states {
		r, err := agent.Status(ctx, state)
		if err != nil {
			return err
		}
		if p.host.Runs(state) {
			if err := p.host.Report(ctx, r, state); err != nil {
				return err
			}
		}
		if reports = append(reports, r); !r.Well {
			failed = errNotWell
		}
	}
	if output == "json" {
		var doc any = reports
		if len(reports) == 1 {
			doc = reports[0]
		}
		e := json.NewEncoder(p.stdout)
		e.SetIndent("", "  ")
		return errors.Join(e.Encode(doc), failed)
	}
	for i, r := range reports {
		if len(reports) > 1 {
			if err := p.say("%s:", filepath.Base(states[i])); err != nil {
				return err
			}
		}
		if err := r.Write(p.stdout); err != nil {
			return err
		}
	}
	return failed
}
