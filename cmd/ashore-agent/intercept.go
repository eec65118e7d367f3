package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"text/tabwriter"

	"github.com/hashicorp/go-hclog"
	"github.com/spf13/cobra"
	"go.yaml.in/yaml/v3"

	"github.com/ashore-mesh/ashore/agent"
	"github.com/ashore-mesh/ashore/agent/intercept"
	"github.com/ashore-mesh/ashore/internal/sdnotify"
)

const interceptLong = `intercept manages the nftables rules that bring this machine's traffic to Envoy: the table
"inet ashore".

The rules follow the settings "interception" of the one workload of this machine. "install" checks that the machine
works with them and removes them again if it does not. Confirmed rules stay until "remove" or "ashore-agent leave": the
unit ashore-intercept.service installs them at boot, and again when another program deletes them.`

func (p *program) interceptCommand() *cobra.Command {
	return group("intercept", "Install, remove and check the rules that bring traffic to Envoy", interceptLong,
		p.interceptInstall(), p.interceptRemove(), p.interceptStatus(), p.interceptCheck(), p.interceptWatch())
}

// interceptConfig returns what the rules of a workload depend on.
func interceptConfig(at place) (c intercept.Config, checks intercept.Checks, err error) {
	state, err := at.folder()
	if err != nil {
		return c, checks, err
	}
	f := &flags{joinedState: state}
	s, err := f.settings()
	if err != nil {
		return c, checks, err
	}
	return agent.InterceptConfig(&s)
}

func (p *program) interceptInstall() *cobra.Command {
	var at place
	var show bool
	cmd := command("install", "Install the rules, or remove them again when the machine does not work with them", "",
		"  ashore-agent intercept install\n  ashore-agent intercept install --print", func(ctx context.Context) error {
			c, checks, err := interceptConfig(at)
			if err != nil {
				return err
			}
			if show {
				text, err := intercept.Print(ctx, c, checks)
				if err != nil {
					return err
				}
				_, err = io.WriteString(p.stdout, text)
				return err
			}
			if err := (intercept.Machine{}).Install(ctx, c, checks); err != nil {
				return err
			}
			if p.host != nil {
				if err := p.host.KeepRules(ctx); err != nil {
					return err
				}
			}
			return p.say("traffic goes through Envoy: all checks succeeded")
		})
	at.add(cmd)
	cmd.Flags().BoolVar(&show, "print", false, "print the rules instead")
	return cmd
}

func (p *program) interceptWatch() *cobra.Command {
	return command("watch", "Keep the confirmed rules installed, until a signal comes",
		`watch is what ashore-intercept.service runs. It installs the confirmed rules without checks, and again whenever
another program deletes them. At its end the rules stay.`,
		"  systemctl status ashore-intercept", func(ctx context.Context) error {
			notifier := sdnotify.Notifier{Log: hclog.New(&hclog.LoggerOptions{Output: p.stderr})}
			return intercept.Machine{}.Watch(ctx, func() { notifier.Tell(sdnotify.Ready) }, func(text string) {
				if err := p.say("%s", text); err != nil {
					notifier.Log.Warn("the text was not written", "error", err)
				}
			})
		})
}

func (p *program) interceptRemove() *cobra.Command {
	var cut bool
	cmd := command("remove", "Remove the rules; connections that go through Envoy stay", "",
		"  ashore-agent intercept remove", func(ctx context.Context) error {
			remove, text := intercept.Machine.Remove, "new connections no longer go through Envoy"
			if cut {
				remove, text = intercept.Machine.Delete, "no connection goes through Envoy any more"
			}
			if err := remove(intercept.Machine{}, ctx); err != nil {
				return err
			}
			return p.say("%s", text)
		})
	cmd.Flags().BoolVar(&cut, "cut", false, "cut connections that go through Envoy, and leave nothing of the table")
	return cmd
}

func (p *program) interceptStatus() *cobra.Command {
	return command("status", "Show what is installed, and what is excluded", "", "  ashore-agent intercept status",
		func(ctx context.Context) error {
			s, err := intercept.Machine{}.Status(ctx)
			if err != nil {
				return err
			}
			return yaml.NewEncoder(p.stdout).Encode(s)
		})
}

func (p *program) interceptCheck() *cobra.Command {
	var at place
	cmd := command("check", "Check that this machine works with the rules",
		"check does once what install does before it confirms the rules. Exit code 1: a check failed.",
		"  ashore-agent intercept check", func(ctx context.Context) error {
			c, checks, err := interceptConfig(at)
			if err != nil {
				return err
			}
			out := tabwriter.NewWriter(p.stdout, 0, 0, 2, ' ', 0)
			var failed error
			for _, r := range (intercept.Machine{}).Check(ctx, c, checks) {
				text := "ok"
				if r.Err != nil {
					text, failed = r.Err.Error(), errNotWell
				}
				fmt.Fprintf(out, "%s\t%s\n", r.Name, text)
			}
			return errors.Join(failed, out.Flush())
		})
	at.add(cmd)
	return cmd
}
