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

// errNotWell is that a status shows something to do: exit code 1, and nothing more to say.
var errNotWell = errors.New("")

// place are the flags that find a workload that has joined.
type place struct{ state, name, namespace string }

func (p *place) add(cmd *cobra.Command) {
	fs := cmd.Flags()
	fs.StringVar(&p.state, "state", "", "state `folder` of the agent (default: that of the one workload of this machine that has joined)")
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

func statusCommand(stdout io.Writer) *cobra.Command {
	var p place
	var output string
	cmd := &cobra.Command{
		Use:   "status",
		Short: "Tell in ten lines what is well and what is not",
		Long:  "status tells how the agent, its Envoy and its identity are, and what to do. Exit code 0: all is well; 1: something is to be done.",
		Example: "  ashore-agent status\n  ashore-agent status --state /var/lib/ashore-agent/web-1.shop -o json" +
			"\n\n  # of an agent that runs with --dev\n  ashore-agent status --state ~/.cache/ashore-agent/web-1.shop",
		Args: noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			state, err := p.folder()
			if err != nil {
				return err
			}
			return printStatus(cmd.Context(), stdout, state, output)
		},
	}
	p.add(cmd)
	cmd.Flags().StringVarP(&output, "output", "o", "text", "`text` or json")
	return cmd
}

func printStatus(ctx context.Context, w io.Writer, state, output string) error {
	if output != "text" && output != "json" {
		return usage(fmt.Errorf("--output %q is not known; want text or json", output))
	}
	r, err := agent.Status(ctx, state)
	if err != nil {
		return err
	}
	write := r.Write
	if output == "json" {
		write = r.WriteJSON
	}
	if err := write(w); err != nil {
		return err
	}
	if !r.Well {
		return errNotWell
	}
	return nil
}

const leaveLong = `leave makes the workload leave the mesh: its agent leaves the endpoints, drains and ends, and its key and certificate
are removed from this machine. The certificate stays valid until it ends; a machine that is not trusted any more is
better dealt with by "ashorectl workload revoke" on the control plane.`

func leaveCommand(stdin io.Reader, stdout io.Writer) *cobra.Command {
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
			if err != nil {
				return err
			}
			return leave(cmd.Context(), stdin, stdout, state, yes, wait)
		},
	}
	p.add(cmd)
	cmd.Flags().BoolVar(&yes, "yes", false, "do not ask")
	cmd.Flags().DurationVar(&wait, "wait", 2*time.Minute, "how long the agent may take to drain and end")
	return cmd
}

func leave(ctx context.Context, stdin io.Reader, stdout io.Writer, state string, yes bool, wait time.Duration) error {
	who := state
	id, _, err := agent.JoinedAs(state)
	switch {
	case err == nil:
		who = id.ID.String() + " (" + state + ")"
	case errors.Is(err, agent.ErrNoIdentity):
		return fmt.Errorf("%s: %w", state, err)
	}
	if !yes {
		sure, err := ask(stdin, stdout, fmt.Sprintf("%s leaves the mesh: its agent ends and its key is removed. Go on? [y/N] ", who))
		if err != nil || !sure {
			return errors.Join(err, errors.New("nothing was done; --yes goes on without asking"))
		}
	}
	if err := agent.Leave(ctx, state, wait); err != nil {
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
