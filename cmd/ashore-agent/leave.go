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

// place are the flags that find a workload that has joined.
type place struct{ state, name, namespace string }

func (p *place) add(cmd *cobra.Command) {
	fs := cmd.Flags()
	fs.StringVar(&p.state, "state", "",
		"state `folder` of the agent (default: that of the one workload of this machine that has joined)")
	fs.StringVar(&p.name, "name", "", "`name` of the workload, when several have joined")
	fs.StringVar(&p.namespace, "namespace", "", "`namespace` of the workload, when several have joined")
}

// folder is the state folder.
func (p *place) folder() (string, error) {
	if p.state != "" {
		return p.state, nil
	}
	return agent.FindJoined(p.name, p.namespace)
}

// folders are the named state folder, or those of all workloads that have joined.
func (p *place) folders() ([]string, error) {
	if p.state == "" {
		if all, err := agent.AllJoined(p.name, p.namespace); err != nil || len(all) > 1 {
			return all, err
		}
	}
	state, err := p.folder()
	return []string{state}, err
}

const leaveLong = `leave makes the workload leave the mesh: its agent leaves the endpoints, drains and ends, and its key and certificate
are removed from this machine. On a machine whose units run the workload it removes the interception rules, stops and
disables the units, and leaves nothing behind. The certificate stays valid until it ends; for a machine that is not
trusted any more use "ashorectl workload revoke" on the control plane.`

func leaveCommand(h *host, stdin io.Reader, stdout io.Writer) *cobra.Command {
	var p place
	var yes bool
	var wait time.Duration
	cmd := &cobra.Command{
		Use:     "leave",
		Short:   "Leave the mesh: end the agent and remove the identity",
		Long:    leaveLong,
		Example: "  ashore-agent leave\n  ashore-agent leave --yes --state /var/lib/ashore-agent/web-1.shop",
		Args:    noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			state, err := p.folder()
			if h != nil && p == (place{}) && errors.Is(err, agent.ErrNoIdentity) {
				return h.leaveNothing(cmd.Context(), stdout)
			}
			if err != nil {
				return err
			}
			return leave(cmd.Context(), h, stdin, stdout, state, yes, wait)
		},
	}
	p.add(cmd)
	cmd.Flags().BoolVar(&yes, "yes", false, "do not ask")
	cmd.Flags().DurationVar(&wait, "wait", 2*time.Minute, "how long the agent may take to drain and end")
	return cmd
}

func leave(ctx context.Context, h *host, stdin io.Reader, stdout io.Writer, state string, yes bool,
	wait time.Duration) error {
	who := state
	id, _, err := agent.JoinedAs(state)
	switch {
	case err == nil:
		who = id.ID.String() + " (" + state + ")"
	case errors.Is(err, agent.ErrNoIdentity):
		return fmt.Errorf("%s: %w", state, err)
	}
	if !yes {
		sure, err := ask(stdin, stdout,
			fmt.Sprintf("%s leaves the mesh: its agent ends and its key is removed. Go on? [y/N] ", who))
		if err != nil || !sure {
			return errors.Join(err, errors.New("nothing was done; --yes goes on without asking"))
		}
	}
	if h.runs(state) {
		err = h.leave(ctx, state, wait)
	} else {
		err = agent.Leave(ctx, state, wait)
	}
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(stdout, "%s has left the mesh\n", who)
	return err
}

// ask asks a person.
func ask(stdin io.Reader, stdout io.Writer, question string) (bool, error) {
	if _, err := io.WriteString(stdout, question); err != nil {
		return false, err
	}
	line, err := bufio.NewReader(io.LimitReader(stdin, 100)).ReadString('\n')
	if err != nil && !errors.Is(err, io.EOF) {
		return false, fmt.Errorf("read the answer: %w", err)
	}
	answer := strings.ToLower(strings.TrimSpace(line))
	return answer == "y" || answer == "yes", nil
}
