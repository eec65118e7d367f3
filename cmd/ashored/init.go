package main

import (
	"context"
	"fmt"

	"github.com/hashicorp/go-hclog"
	"github.com/spf13/cobra"

	"github.com/ashore-mesh/ashore/internal/server"
	"github.com/ashore-mesh/ashore/internal/settings"
)

// initializedError says that the state folder belongs to a control plane already.
type initializedError struct{ path string }

func (e *initializedError) Error() string {
	return fmt.Sprintf("%s exists: the state folder belongs to a control plane already, and nothing was changed. "+
		"For a new one set another folder (setting state), or remove this one: every workload then has to join again", e.path)
}

func initCommand() *cobra.Command {
	var config string
	cmd := &cobra.Command{
		Use:   "init",
		Short: "Create the store and the root certificate of a new control plane",
		Long: `Create the store and the root certificate of a new control plane in the state folder, as the user that
runs it. An existing one is never replaced. The packages run this when they are installed first.

Exit codes: 0 created; 1 it could not be created; 2 wrong usage or settings; 3 there is one already.`,
		Example: `  runuser -u ashore -- ashored init
  ashored init --config ashored.yaml`,
		Args: func(cmd *cobra.Command, args []string) error { return usage(cobra.NoArgs(cmd, args)) },
		RunE: func(cmd *cobra.Command, _ []string) error {
			s, err := (&flags{config: config}).settings(cmd)
			if err != nil {
				return err
			}
			s.Log.Level = "warn"
			created, err := initialize(cmd.Context(), s, newLogger(s.Log, cmd.ErrOrStderr()))
			if err != nil {
				return err
			}
			_, err = fmt.Fprintln(cmd.OutOrStdout(), created)
			return err
		},
	}
	cmd.Flags().StringVar(&config, "config", settings.DefaultFile, "settings file")
	return cmd
}

// initialize creates the store and the root certificate, and returns what it created. Errors:
// *initializedError if the state folder has either.
func initialize(ctx context.Context, s settings.Config, log hclog.Logger) (created string, err error) {
	path, err := server.Initialized(s)
	switch {
	case err != nil:
		return "", err
	case path != "":
		return "", &initializedError{path}
	}
	return server.Init(ctx, s, log)
}
