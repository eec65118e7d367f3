package main

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"

	"github.com/hashicorp/go-hclog"
	"github.com/spf13/cobra"

	"github.com/ashore-mesh/ashore/internal/build"
	"github.com/ashore-mesh/ashore/internal/completion"
	"github.com/ashore-mesh/ashore/internal/settings"
)

// devFlag is a flag that needs --dev, and the setting that it sets.
type devFlag struct {
	name, setting, help string
	field               func(*settings.Config) *string
}

func devFlags() []devFlag {
	return []devFlag{
		{"state", "state", "folder to keep state in", func(s *settings.Config) *string { return &s.State }},
		{"xds-address", "xds.plaintextAddress", "address of plaintext xDS",
			func(s *settings.Config) *string { return &s.XDS.PlaintextAddress }},
		{"xds-tls-address", "xds.address", "address of xDS and the certificate authority with TLS (default: none)",
			func(s *settings.Config) *string { return &s.XDS.Address }},
		{"metrics-address", "metrics.address", "address of metrics, health and readiness",
			func(s *settings.Config) *string { return &s.Metrics.Address }},
		{"webhook-address", "webhook.address",
			"address of validation over HTTPS, which needs --xds-tls-address (default: none)",
			func(s *settings.Config) *string { return &s.Webhook.Address }},
		{"admin-socket", "admin.socket", "admin socket (default: admin.sock in the state folder)",
			func(s *settings.Config) *string { return &s.Admin.Socket }},
	}
}

// flags are the flags that do not belong to one setting.
type flags struct {
	config, files string
	dev           bool
}

// newRoot is the command line. logging is called with the log of the program once that is known.
func newRoot(logging func(hclog.Logger)) *cobra.Command {
	var f flags
	cmd := &cobra.Command{
		Use:   "ashored",
		Short: "The control plane of an Ashore mesh",
		Long: `ashored reads Istio's configuration API from folders of YAML, servers of MCP and its own store, and services
from Consul too; it builds what every proxy is to have, and serves it to Envoy over xDS, on port 15012 with
TLS. It is the mesh's certificate authority too.

Settings come from one file, --config; see docs/settings.md. With --dev no file is needed: ashored
serves the folder --files as plaintext xDS on loopback, and keeps its state in the folder --state.

Exit codes: 0 ended by a signal; 1 it could not start or a part failed; 2 wrong usage or settings.`,
		Example: `  ashored --config /etc/ashore/ashored.yaml
  ashored --dev --files examples/quickstart/config
  ashored --dev --files config --xds-tls-address 127.0.0.1:15012   with identities: "ashorectl join-token create"
  ashored --dev --files config --state /tmp/ashore --xds-address 127.0.0.1:16010`,
		Args:          func(_ *cobra.Command, args []string) error { return usage(noArgs(args)) },
		Version:       build.Read().String(),
		SilenceErrors: true,
		SilenceUsage:  true,
		RunE: func(cmd *cobra.Command, _ []string) error {
			// Before the settings are read: a signal during that means that the file has changed.
			hup := make(chan os.Signal, 1)
			signal.Notify(hup, syscall.SIGHUP)
			defer signal.Stop(hup)
			s, err := f.settings(cmd)
			if err != nil {
				return err
			}
			log := newLogger(s.Log, cmd.ErrOrStderr())
			logging(log)
			err = serve(cmd.Context(), s, func() (settings.Config, error) { return f.settings(cmd) }, hup, log)
			if err != nil && s.Log.Format == "json" {
				log.Error("ended by a failure", "error", err)
				return loggedError{err}
			}
			return err
		},
	}
	cmd.SetVersionTemplate("{{.Name}} {{.Version}}\n")
	fs := cmd.Flags()
	fs.StringVar(&f.config, "config", settings.DefaultFile, "settings file")
	fs.BoolVar(&f.dev, "dev", false, "development: plaintext xDS on loopback, no settings file needed")
	fs.StringVar(&f.files, "files", "", "with --dev: folder of configuration to serve (required)")
	dev := settings.Dev()
	for _, d := range devFlags() {
		fs.String(d.name, *d.field(&dev), "with --dev: "+d.help)
	}
	cmd.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return usage(err) })
	cmd.AddCommand(initCommand(), versionCommand(), checkStoreCommand())
	noMore := func(cmd *cobra.Command, args []string) error { return usage(cobra.NoArgs(cmd, args)) }
	completion.Refine(cmd, noMore, func(_ *cobra.Command, err error) error { return usage(err) })
	return cmd
}

func noArgs(args []string) error {
	if len(args) > 0 {
		return fmt.Errorf("%q is not a command of ashored; its settings come from --config FILE, or --dev", args[0])
	}
	return nil
}

// settings returns the settings of the file, and with --dev those of the flags over them. Errors are
// usage errors.
func (f *flags) settings(cmd *cobra.Command) (settings.Config, error) {
	given := cmd.Flags().Changed
	if !f.dev {
		for _, d := range append(devFlags(), devFlag{name: "files", setting: "sources"}) {
			if given(d.name) {
				return settings.Config{}, usage(fmt.Errorf("--%s is for --dev: otherwise write %q in the settings file %s",
					d.name, d.setting, f.config))
			}
		}
		s, err := settings.Read(f.config, settings.Default())
		if err == nil {
			err = s.Check(f.config)
		}
		return s, usage(err)
	}
	s, from := settings.Dev(), "--dev"
	if given("config") {
		var err error
		if s, err = settings.Read(f.config, s); err != nil {
			return s, usage(err)
		}
		from = f.config
	}
	s.Flags = map[string]string{}
	for _, d := range devFlags() {
		if given(d.name) {
			*d.field(&s) = cmd.Flag(d.name).Value.String()
			s.Flags[d.setting] = "--" + d.name
		}
	}
	if given("files") {
		s.SourceList = settings.DefaultSources(f.files)
		s.Flags["sources"] = "--files"
	}
	if len(s.SourceList) == 0 {
		return s, usage(errors.New("--dev needs --files DIR, the folder of configuration to serve"))
	}
	s.Admin.Socket = cmp.Or(s.Admin.Socket, filepath.Join(s.State, "admin.sock"))
	return s, usage(s.Check(from))
}

func versionCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "Show the version",
		Args:  func(_ *cobra.Command, args []string) error { return usage(noArgs(args)) },
		RunE: func(cmd *cobra.Command, _ []string) error {
			_, err := fmt.Fprintf(cmd.OutOrStdout(), "ashored %s\n", build.Read())
			return err
		},
	}
}
