package main

import (
	"context"
	"fmt"
	"io"

	"github.com/coreos/go-systemd/v22/activation"
	"github.com/hashicorp/go-hclog"
	"github.com/spf13/cobra"

	"github.com/ashore-mesh/ashore/agent"
	"github.com/ashore-mesh/ashore/internal/build"
	"github.com/ashore-mesh/ashore/internal/completion"
	"github.com/ashore-mesh/ashore/internal/ending"
	"github.com/ashore-mesh/ashore/internal/sdnotify"
)

const long = `ashore-agent makes a workload a member of the mesh and runs the Envoy beside it.

"join" gets an identity with a one-time token; the agent renews it from then on. "run" writes Envoy's bootstrap, starts
Envoy and starts it again when it ends. Envoy takes its configuration, its key and its certificates from the agent.
At SIGTERM or Ctrl-C the workload leaves the endpoints and connections are drained before Envoy ends; a second signal
ends at once. "status" tells what is well and what is not, "leave" undoes "join".

Settings come from a file (--config) and from flags; a flag wins. Without privileges several workloads run on
one machine when each has an address of its own: 127.0.0.2, 127.0.0.3, …`

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

// command is the program's command line; logging is called with its log.
func command(logging func(hclog.Logger), stdin io.Reader, stdout, stderr io.Writer) *cobra.Command {
	root := &cobra.Command{
		Use:           "ashore-agent",
		Short:         "Make a workload a member of the mesh and run its Envoy",
		Long:          long,
		Version:       build.Read().String(),
		SilenceUsage:  true,
		SilenceErrors: true,
		Args:          unknownCommand,
		RunE:          func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	root.SetVersionTemplate("{{.Name}} {{.Version}}\n")
	root.SetOut(stdout)
	root.SetErr(stderr)
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		return usage(fmt.Errorf("%w; see %s --help", err, cmd.CommandPath()))
	})
	h := thisHost()
	root.AddCommand(joinCommand(logging, h, stdin, stdout, stderr), runCommand(logging, stdout, stderr),
		statusCommand(h, stdout), leaveCommand(h, stdin, stdout),
		interceptCommand(stdout), versionCommand(stdout))
	completion.Refine(root, noArguments, func(_ *cobra.Command, err error) error { return usage(err) })
	return root
}

func unknownCommand(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	return usage(fmt.Errorf("unknown command %q; see %s --help", args[0], cmd.CommandPath()))
}

func noArguments(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	return usage(fmt.Errorf("unexpected argument %q; %s takes flags only, see --help", args[0], cmd.CommandPath()))
}

func runCommand(logging func(hclog.Logger), stdout, stderr io.Writer) *cobra.Command {
	f := &flags{}
	cmd := &cobra.Command{
		Use:     "run",
		Short:   "Run Envoy until a signal comes",
		Example: runExample,
		Args:    noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := f.joined(); err != nil {
				return err
			}
			return runAgent(cmd.Context(), logging, f, stdout, stderr)
		},
	}
	f.add(cmd.Flags())
	return cmd
}

// runAgent runs until ctx ends.
func runAgent(ctx context.Context, logging func(hclog.Logger), f *flags, stdout, stderr io.Writer) error {
	s, err := f.settings()
	if err != nil {
		return err
	}
	log := logger(s.Log, stderr)
	logging(log)
	systemd := sdnotify.Notifier{Log: log}
	a, err := agent.New(agent.Config{Settings: s, Log: log, Stdout: stdout, Sockets: activation.Files(true),
		Notify: systemd.Tell, Watchdog: systemd.Watchdog()})
	if err == nil {
		err = a.Run(ctx)
	}
	if err != nil {
		err = f.explain(err)
	}
	if s.Log.Format == "json" {
		err = ending.Log(log, err)
	}
	return err
}

func versionCommand(stdout io.Writer) *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "Print which build this is",
		Args:  noArguments,
		RunE: func(*cobra.Command, []string) error {
			_, err := fmt.Fprintf(stdout, "ashore-agent %s\n", build.Read())
			return err
		},
	}
}

// logger writes to w. The settings have been checked.
func logger(l agent.Log, w io.Writer) hclog.Logger {
	return hclog.New(&hclog.LoggerOptions{Level: hclog.LevelFromString(l.Level), JSONFormat: l.Format == "json",
		Output: w})
}
