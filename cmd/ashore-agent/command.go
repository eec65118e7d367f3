package main

import (
	"context"
	"fmt"
	"io"

	"github.com/coreos/go-systemd/v22/activation"
	"github.com/hashicorp/go-hclog"
	"github.com/spf13/cobra"

	"github.com/ashore-mesh/ashore/agent"
	"github.com/ashore-mesh/ashore/agent/host"
	"github.com/ashore-mesh/ashore/internal/build"
	"github.com/ashore-mesh/ashore/internal/sdnotify"
)

const long = `ashore-agent makes a workload a member of the mesh and runs the Envoy beside it.

"join" gets an identity with a one-time token; the agent renews it from then on. "run" runs Envoy, and serves it
configuration, key and certificates. At SIGTERM or Ctrl-C the workload leaves the endpoints, and connections are drained
before Envoy ends; a second signal ends it at once. "status" shows the state of all parts, "leave" undoes "join".

Settings come from a file (--config) and from flags; a flag wins. Several workloads run on one machine without
privileges if each has an address of its own: 127.0.0.2, 127.0.0.3, …`

const runExample = `  # the workload of this machine that has joined
  ashore-agent run

  # one of several
  ashore-agent run --state /var/lib/ashore-agent/web-1.shop

  # a trial without identities, for a control plane started by "ashored --dev"
  ashore-agent run --dev --xds 127.0.0.1:15010 --name web-1 --namespace shop --address 127.0.0.2 \
    --labels app=web,version=v1

  # is it ready?
  curl http://127.0.0.2:15020/healthz/ready

  # settings from a file
  ashore-agent run --config /etc/ashore/agent.yaml`

// program is one run of this program.
type program struct {
	logging        func(hclog.Logger) // called with the log
	stdin          io.Reader
	stdout, stderr io.Writer
	host           *host.Host // nil: units of this machine cannot run a workload
}

// command is the program's command line.
func (p *program) command() *cobra.Command {
	root := group("ashore-agent", "Make a workload a member of the mesh and run its Envoy", long,
		p.joinCommand(), p.runCommand(), p.statusCommand(), p.logCommand(), p.proxyLogCommand(), p.leaveCommand(),
		p.interceptCommand(), p.versionCommand())
	root.Version = build.Read().String()
	root.SilenceUsage, root.SilenceErrors = true, true
	root.SetVersionTemplate("{{.Name}} {{.Version}}\n")
	root.SetOut(p.stdout)
	root.SetErr(p.stderr)
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		return usage(fmt.Errorf("%w; see %s --help", err, cmd.CommandPath()))
	})
	return root
}

// group is a command that has others.
func group(use, short, long string, commands ...*cobra.Command) *cobra.Command {
	cmd := &cobra.Command{
		Use: use, Short: short, Long: long,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return nil
			}
			return usage(fmt.Errorf("unknown command %q; see %s --help", args[0], cmd.CommandPath()))
		},
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(commands...)
	return cmd
}

// command is one that takes flags only. example may be empty.
func command(use, short, long, example string, run func(ctx context.Context) error) *cobra.Command {
	return &cobra.Command{
		Use: use, Short: short, Long: long, Example: example,
		Args: noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error { return run(cmd.Context()) },
	}
}

func noArguments(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	return usage(fmt.Errorf("unexpected argument %q; %s takes flags only, see --help", args[0], cmd.CommandPath()))
}

func (p *program) runCommand() *cobra.Command {
	f := &flags{}
	cmd := command("run", "Run Envoy until a signal comes", "", runExample, func(ctx context.Context) error {
		if err := f.joined(); err != nil {
			return err
		}
		return p.runAgent(ctx, f)
	})
	f.add(cmd.Flags(), "xds")
	cmd.Flags().BoolVar(&f.units, "units", false, "run Envoy as units of systemd (ashore-envoy@), as ashore-agent.service does")
	return cmd
}

// runAgent runs until ctx ends.
func (p *program) runAgent(ctx context.Context, f *flags) error {
	s, err := f.settings()
	if err != nil {
		return err
	}
	log := p.logger(s.Log)
	p.logging(log)
	systemd := sdnotify.Notifier{Log: log}
	a, err := agent.New(agent.Config{Settings: s, Log: log, Stdout: p.stdout, Stderr: p.stderr, Sockets: activation.Files(true),
		Notify: systemd.Tell, Watchdog: systemd.Watchdog()})
	if err == nil {
		err = a.Run(ctx)
	}
	return err
}

func (p *program) versionCommand() *cobra.Command {
	return command("version", "Print the version", "", "", func(context.Context) error {
		return p.say("ashore-agent %s", build.Read())
	})
}

// say prints a line.
func (p *program) say(format string, args ...any) error {
	_, err := fmt.Fprintf(p.stdout, format+"\n", args...)
	return err
}

// logger writes to standard error. The settings have been checked.
func (p *program) logger(l agent.Log) hclog.Logger {
	return hclog.New(&hclog.LoggerOptions{Level: hclog.LevelFromString(l.Level), Output: p.stderr})
}
