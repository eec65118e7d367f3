package main

import (
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/ashore-mesh/ashore/internal/admin"
	"github.com/ashore-mesh/ashore/internal/build"
	"github.com/ashore-mesh/ashore/internal/completion"
)

// usageError is a command line that makes no sense.
type usageError struct {
	command string // the command whose help helps
	err     error
}

func (e *usageError) Error() string { return e.err.Error() }
func (e *usageError) Unwrap() error { return e.err }

func usage(cmd *cobra.Command, err error) error {
	if err == nil {
		return nil
	}
	return &usageError{cmd.CommandPath(), err}
}

// tool is what all commands share: the persistent flags.
type tool struct {
	socket  string
	timeout time.Duration
	output  format
}

func newRoot() *cobra.Command {
	t := &tool{output: table}
	root := &cobra.Command{
		Use:   "ashorectl",
		Short: "Inspect and configure a running ashored, and let machines join",
		Long: `ashorectl inspects a running ashored: proxies and what they receive, problems, and the active configuration. It
writes configuration to the store, makes join tokens, revokes identities, and reads the audit log.

It connects to the admin socket of ashored on the same machine, as root, as the user of ashored, or as a user
with a role (setting admin.roles: viewer, operator or admin). Without --socket it uses the socket of a development
run in this folder or a folder above it (.ashore or .run), or else /run/ashore/admin.sock.

Exit codes: 0 success; 1 failure, or "problems", "validate" or "analyze" found errors; 2 wrong usage.`,
		Example: `  ashorectl status                               the state of ashored, and every proxy
  ashorectl proxy-status web-1.shop              one proxy, type by type, with what it rejected
  ashorectl problems                             what is wrong with the configuration, and what to do
  ashorectl get virtualservice -n shop           active objects, and where each is defined
  ashorectl proxy-config route web-1.shop -o yaml
  ashorectl analyze -f config/                   check files before they go live
  ashorectl apply -f web.yaml --dry-run          show the difference; without --dry-run write it to the store
  ashorectl rollback 41                          restore revision 41 of the store
  ashorectl join-token create --group shop/web   print the commands that make a machine join
  ashorectl authz explain shop/web shop/api --method GET --path /
  source <(ashorectl completion bash)            completion of commands, kinds and proxies`,
		PersistentPreRunE: func(cmd *cobra.Command, _ []string) error {
			if t.timeout < 0 {
				return usage(cmd, fmt.Errorf("--timeout %s: want 0 or more", t.timeout))
			}
			return nil
		},
		Args:          func(cmd *cobra.Command, args []string) error { return usage(cmd, cobra.NoArgs(cmd, args)) },
		Version:       build.Read().String(),
		SilenceErrors: true,
		SilenceUsage:  true,
		RunE:          func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	root.PersistentFlags().StringVar(&t.socket, "socket", "", "admin socket of ashored (default: see above)")
	root.PersistentFlags().DurationVar(&t.timeout, "timeout", 10*time.Second,
		"how long ashored may take; unless set, 4m for writes to the store and 40s for revocations; 0: no limit")
	root.PersistentFlags().VarP(&t.output, "output", "o", "table, json or yaml")
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error { return usage(cmd, wanted(err)) })
	root.SetVersionTemplate("{{.Name}} {{.Version}}\n")
	must(root.RegisterFlagCompletionFunc("output", cobra.FixedCompletions([]string{"table", "json", "yaml"},
		cobra.ShellCompDirectiveNoFileComp)))
	addGroup(root, "inspect", "Inspect:", t.statusCommand(), t.proxyStatusCommand(), t.proxyConfigCommand(),
		t.sourcesCommand(), t.problemsCommand(), t.getCommand(), t.authzCommand(), t.auditCommand())
	addGroup(root, "configure", "Configure:", t.validateCommand(), t.analyzeCommand(), t.applyCommand(),
		t.deleteCommand(), t.historyCommand(), t.rollbackCommand(), t.vipCommand())
	addGroup(root, "identity", "Identity:", t.joinTokenCommand(), t.workloadCommand(), t.caCommand())
	addGroup(root, "help", "Help:", t.versionCommand())
	root.SetHelpCommandGroupID("help")
	root.SetCompletionCommandGroupID("help")
	completion.Refine(root, atMost(0), usage)
	return root
}

// addGroup adds commands that the help text lists together under title.
func addGroup(root *cobra.Command, id, title string, commands ...*cobra.Command) {
	root.AddGroup(&cobra.Group{ID: id, Title: title})
	for _, c := range commands {
		c.GroupID = id
		root.AddCommand(c)
	}
}

// blamed makes an error of usage of the answer that a question makes no sense.
func blamed(cmd *cobra.Command, err error) error {
	if errors.Is(err, admin.ErrInvalid) {
		return usage(cmd, err)
	}
	return err
}

// must panics on a mistake in the commands themselves, which no input can cause.
func must(err error) {
	if err != nil {
		panic(err)
	}
}

// client is that of the socket that was named, or found.
func (t *tool) client() (*admin.Client, error) {
	if t.socket != "" {
		return admin.NewClient(t.socket).Within(t.timeout), nil
	}
	path, err := findSocket(".", defaultSocket)
	if err != nil {
		return nil, fmt.Errorf("look for the admin socket of ashored (or name it with --socket): %w", err)
	}
	return admin.NewClient(path).Within(t.timeout), nil
}
