package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/ashore-mesh/ashore/agent"
)

// stateFlag adds the flag that names a workload that has joined.
func stateFlag(cmd *cobra.Command, state *string) {
	cmd.Flags().StringVar(state, "state", "",
		"state `folder` of the agent (default: that of the one workload of this machine that has joined)")
}

// stateFolder returns the state folder that a flag names, or finds it.
func stateFolder(flag string) (string, error) {
	if flag != "" {
		return flag, nil
	}
	state, _, err := agent.FindJoined()
	return state, err
}

const leaveLong = `leave removes the workload from the mesh. Callers stop using it, its agent and Envoy drain and end, and its key
and certificate are deleted from this machine. Interception rules and units of systemd are removed too.

The certificate stays valid until it expires. For a machine that you do not trust, run "ashorectl workload revoke" on
the control plane.`

const leaveExample = `  ashore-agent leave
  ashore-agent leave --yes --state /var/lib/ashore-agent/web-1.shop`

func (p *program) leaveCommand() *cobra.Command {
	var named string
	var yes bool
	cmd := command("leave", "Leave the mesh: end the agent and remove the identity", leaveLong, leaveExample,
		func(ctx context.Context) error {
			state, err := stateFolder(named)
			if p.host != nil && named == "" && errors.Is(err, agent.ErrNoIdentity) {
				if err := p.host.Clean(ctx); err != nil {
					return err
				}
				return p.say("no workload of this machine has joined; no rules are installed")
			}
			if err != nil {
				return err
			}
			return p.leave(ctx, state, yes)
		})
	stateFlag(cmd, &named)
	cmd.Flags().BoolVar(&yes, "yes", false, "do not ask")
	return cmd
}

// leaveTimeout bounds how long an agent may take to drain and end.
const leaveTimeout = 2 * time.Minute

func (p *program) leave(ctx context.Context, state string, yes bool) error {
	who := state
	id, _, err := agent.JoinedAs(state)
	switch {
	case err == nil:
		who = id.ID.String() + " (" + state + ")"
	case errors.Is(err, agent.ErrNoIdentity):
		return fmt.Errorf("%s: %w", state, err)
	}
	if !yes {
		if err := p.confirm(who + " leaves the mesh: its agent ends and its key is removed. Go on? [y/N] "); err != nil {
			return err
		}
	}
	if p.host.Runs(state) {
		err = p.host.Leave(ctx, state)
	} else {
		err = agent.Leave(ctx, state, leaveTimeout)
	}
	if err != nil {
		return err
	}
	return p.say("%s has left the mesh", who)
}

// confirm asks a person; anything but yes is an error.
func (p *program) confirm(question string) error {
	if _, err := io.WriteString(p.stdout, question); err != nil {
		return err
	}
	line, err := bufio.NewReader(io.LimitReader(p.stdin, 100)).ReadString('\n')
	if err != nil && !errors.Is(err, io.EOF) {
		return fmt.Errorf("read the answer: %w", err)
	}
	if answer := strings.ToLower(strings.TrimSpace(line)); answer != "y" && answer != "yes" {
		return errors.New("nothing was done; --yes goes on without asking")
	}
	return nil
}
