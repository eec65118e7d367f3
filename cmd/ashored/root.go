package main

import (
	"os"
	"os/signal"
	"syscall"

	"github.com/hashicorp/go-hclog"
	"github.com/spf13/cobra"

	"github.com/ashore-mesh/ashore/filestore/bolt"
	"github.com/ashore-mesh/ashore/internal/build"
	"github.com/ashore-mesh/ashore/internal/server"
	"github.com/ashore-mesh/ashore/internal/settings"
)

// newRoot is the command line. logging is called with the log of the program once that is known.
func newRoot(logging func(hclog.Logger)) *cobra.Command {
	var f settings.Flags
	cmd := &cobra.Command{
		Use:   "ashored",
		Short: "The control plane of an Ashore mesh",
		Long: `ashored reads Istio's configuration API from folders of YAML, its own store and MCP servers, and services
from Consul. It serves Envoys over xDS, on port 15012 with TLS, and is the certificate authority of the mesh.

Settings come from the file --config; see docs/settings.md. With --dev no file is needed: ashored serves the
folder --files as plaintext xDS on 127.0.0.1:15010, and keeps its state in the folder .ashore.

Exit codes: 0 ended by a signal; 1 it could not start or a part failed; 2 wrong usage or settings.`,
		Example: `  ashored --config /etc/ashore/ashored.yaml
  ashored --dev --files examples/quickstart/config
  ashored --dev --files config --set xds.address=127.0.0.1:15012   with identities: "ashorectl join-token create"
  ashored --dev --files config --set state=/tmp/ashore --set xds.plaintextAddress=127.0.0.1:16010`,
		Args:          arguments(cobra.NoArgs),
		Version:       build.Read().String(),
		SilenceErrors: true,
		SilenceUsage:  true,
		RunE: func(cmd *cobra.Command, _ []string) error {
			// Before the settings are read: a signal during that means that the file has changed.
			hup := make(chan os.Signal, 1)
			signal.Notify(hup, syscall.SIGHUP)
			defer signal.Stop(hup)
			p := program{read: func() (settings.Config, error) { return settings.Read(f) }, hup: hup,
				out: cmd.ErrOrStderr(), logging: logging}
			return p.serve(cmd.Context())
		},
	}
	cmd.SetVersionTemplate("{{.Name}} {{.Version}}\n")
	all := cmd.PersistentFlags()
	all.StringVar(&f.File, "config", "", "settings `file` (default "+settings.DefaultFile+"; with --dev none)")
	all.StringArrayVar(&f.Set, "set", nil,
		"a `setting=value` that overrides the file, such as log.level=debug; may be repeated")
	cmd.Flags().BoolVar(&f.Dev, "dev", false, "development: plaintext xDS on loopback, no settings file needed")
	cmd.Flags().StringVar(&f.Files, "files", "", "with --dev: `folder` of configuration to serve")
	cmd.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return usage(err) })
	cmd.AddCommand(initCommand(&f), checkStoreCommand())
	return cmd
}

func checkStoreCommand() *cobra.Command {
	return &cobra.Command{
		Use:    server.CheckStoreCommand + " PATH",
		Short:  "Check a store file; used by ashored itself after an unclean stop",
		Hidden: true,
		Args:   arguments(cobra.ExactArgs(1)),
		RunE:   func(_ *cobra.Command, args []string) error { return bolt.Check(args[0]) },
	}
}
