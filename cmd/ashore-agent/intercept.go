package main

import (
	"context"
	"io"

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
	return group("intercept", "Install, remove and show the rules that bring traffic to Envoy", interceptLong,
		p.interceptInstall(), p.interceptRemove(), p.interceptStatus(), p.interceptWatch())
}

func (p *program) interceptInstall() *cobra.Command {
	var named string
	var show bool
	cmd := command("install", "Install the rules, or remove them again when the machine does not work with them", "",
		"  ashore-agent intercept install\n  ashore-agent intercept install --print", func(ctx context.Context) error {
			state, err := stateFolder(named)
			if err != nil {
				return err
			}
			s, err := (&flags{joinedState: state}).settings()
			if err != nil {
				return err
			}
			c, checks, err := agent.InterceptConfig(&s)
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
	stateFlag(cmd, &named)
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
