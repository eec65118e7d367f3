package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"text/tabwriter"

	"github.com/spf13/cobra"
	"go.yaml.in/yaml/v3"

	"github.com/ashore-mesh/ashore/agent"
	"github.com/ashore-mesh/ashore/agent/intercept"
)

const interceptLong = `intercept manages the nftables rules that bring this machine's traffic to Envoy: the table
"inet ashore".

The rules follow the settings "interception" of the one workload of this machine. "install" checks that the machine
works with them and removes them again if it does not. Confirmed rules are installed at every boot until "remove" or
"ashore-agent leave".`

func interceptCommand(stdout io.Writer) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "intercept",
		Short: "Install, remove and check the rules that bring traffic to Envoy",
		Long:  interceptLong,
		Args:  unknownCommand,
		RunE:  func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(interceptInstall(stdout), interceptRemove(stdout), interceptStatus(stdout), interceptCheck(stdout))
	return cmd
}

// interceptFlags find the settings.
type interceptFlags struct {
	place
	config string
}

func (f *interceptFlags) add(cmd *cobra.Command) {
	f.place.add(cmd)
	cmd.Flags().StringVar(&f.config, "config", "", "settings `file`; it wins over those of the workload")
}

// read returns what the rules depend on.
func (f *interceptFlags) read() (intercept.Config, intercept.Checks, error) {
	state, err := f.folder()
	if err != nil && f.config == "" {
		return intercept.Config{}, intercept.Checks{}, err
	}
	all := &flags{config: f.config, state: state}
	s, err := all.settings()
	if err != nil {
		return intercept.Config{}, intercept.Checks{}, err
	}
	c, checks, err := agent.InterceptConfig(&s)
	return c, checks, all.explain(err)
}

func interceptInstall(stdout io.Writer) *cobra.Command {
	var f interceptFlags
	var boot, show bool
	cmd := &cobra.Command{
		Use:     "install",
		Short:   "Install the rules, or remove them again when the machine does not work with them",
		Example: "  ashore-agent intercept install\n  ashore-agent intercept install --print",
		Args:    noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if boot {
				return installAtBoot(cmd.Context(), stdout)
			}
			c, checks, err := f.read()
			if err != nil {
				return err
			}
			if show {
				text, err := c.Render()
				if err != nil {
					return err
				}
				_, err = io.WriteString(stdout, text)
				return err
			}
			if err := (intercept.Machine{}).Install(cmd.Context(), c, checks); err != nil {
				return err
			}
			_, err = fmt.Fprintln(stdout, "traffic goes through Envoy: all checks succeeded")
			return err
		},
	}
	f.add(cmd)
	cmd.Flags().BoolVar(&boot, "boot", false,
		"install the confirmed rules without checks; do nothing if there are none")
	cmd.Flags().BoolVar(&show, "print", false, "print the rules instead")
	return cmd
}

func installAtBoot(ctx context.Context, stdout io.Writer) error {
	installed, err := intercept.Machine{}.Boot(ctx)
	if err != nil {
		return err
	}
	text := "the confirmed rules are installed"
	if !installed {
		text = "no rules were confirmed on this machine; nothing was done"
	}
	_, err = fmt.Fprintln(stdout, text)
	return err
}

func interceptRemove(stdout io.Writer) *cobra.Command {
	var cut bool
	cmd := &cobra.Command{
		Use:     "remove",
		Short:   "Remove the rules; connections that go through Envoy stay",
		Example: "  ashore-agent intercept remove",
		Args:    noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			remove, text := intercept.Machine.Remove, "new connections no longer go through Envoy"
			if cut {
				remove, text = intercept.Machine.Delete, "no connection goes through Envoy any more"
			}
			if err := remove(intercept.Machine{}, cmd.Context()); err != nil {
				return err
			}
			_, err := fmt.Fprintln(stdout, text)
			return err
		},
	}
	cmd.Flags().BoolVar(&cut, "cut", false, "cut connections that go through Envoy, and leave nothing of the table")
	return cmd
}

func interceptStatus(stdout io.Writer) *cobra.Command {
	return &cobra.Command{
		Use:     "status",
		Short:   "Show what is installed, and what is excluded",
		Example: "  ashore-agent intercept status",
		Args:    noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			s, err := intercept.Machine{}.Status(cmd.Context())
			if err != nil {
				return err
			}
			return yaml.NewEncoder(stdout).Encode(s)
		},
	}
}

func interceptCheck(stdout io.Writer) *cobra.Command {
	var f interceptFlags
	cmd := &cobra.Command{
		Use:     "check",
		Short:   "Check that this machine works with the rules",
		Long:    "check does once what install does before it confirms the rules. Exit code 1: a check failed.",
		Example: "  ashore-agent intercept check",
		Args:    noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, checks, err := f.read()
			if err != nil {
				return err
			}
			out := tabwriter.NewWriter(stdout, 0, 0, 2, ' ', 0)
			var failed error
			for _, r := range checks.Run(cmd.Context(), c) {
				text := "ok"
				if r.Err != nil {
					text, failed = r.Err.Error(), errNotWell
				}
				fmt.Fprintf(out, "%s\t%s\n", r.Name, text)
			}
			return errors.Join(failed, out.Flush())
		},
	}
	f.add(cmd)
	return cmd
}
