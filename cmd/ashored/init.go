package main

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/ashore-mesh/ashore/internal/server"
	"github.com/ashore-mesh/ashore/internal/settings"
)

func initCommand(f *settings.Flags) *cobra.Command {
	return &cobra.Command{
		Use:   "init",
		Short: "Create the store and the root certificate of a control plane",
		Long: `Create the store and the root certificate of a control plane in the state folder, as the user that runs it,
and with store.kind consul the store in Consul. What exists is kept: for a further replica of a shared store,
only its state folder is created. The package runs this when it is first installed.

Exit codes: 0 everything exists now; 1 it could not be created; 2 wrong usage or settings.`,
		Example: `  runuser -u ashore -- ashored init
  ashored init --config ashored.yaml`,
		Args: arguments(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			s, err := settings.Read(*f)
			if err != nil {
				return usage(err)
			}
			s.Log.Level = "warn"
			done, err := server.Init(cmd.Context(), s, newLogger(s.Log, cmd.ErrOrStderr()))
			if err != nil {
				return err
			}
			_, err = fmt.Fprintln(cmd.OutOrStdout(), strings.Join(done, "\n"))
			return err
		},
	}
}
