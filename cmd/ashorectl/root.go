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
		Short: "Ask a running ashored how everything is, and let machines join",
		Long: `ashorectl asks a running ashored how everything is: which proxies are connected and what they
have, what is wrong with the configuration, what is in use, and what a proxy is sent. It writes
configuration to the store and brings back what was there, makes the tokens by which machines join,
takes identities away, and shows who did what.

It talks to the admin socket of ashored on the same machine, as root, as the user that ashored runs
as, or as one to whom the setting admin.roles gives a role: viewer, operator or admin. Without --socket
it takes the one of a development run in this folder or a folder above it (.ashore or .run), else
/run/ashore/admin.sock.

Exit codes: 0 fine; 1 it did not work, or "problems" or "validate" found errors; 2 wrong usage.`,
		Example: `  ashorectl status                          every proxy on one line
  ashorectl status web-1.shop               one proxy, type by type, rejections in Envoy's words
  ashorectl problems                        what is wrong with the configuration, and what to do
  ashorectl get virtualservice -n shop      what is in use, and where it was read
  ashorectl get endpoints -w                who serves which host, how they are, and from which source
  ashorectl dump web-1.shop --type rds -o yaml
  ashorectl validate -f config/             check files before they go live
  ashorectl apply -f web.yaml --dry-run     what writing it to the store would change; then without
  ashorectl rollback 41                     bring back what the store held at a revision
  ashorectl join-token create --group shop/web   print the commands that make a machine join
  ashorectl workload list                   who has an identity, and what is revoked
  ashorectl authz explain shop/web shop/api --method GET --path /
  source <(ashorectl completion bash)       completion of commands, kinds and proxies`,
		PersistentPreRunE: func(cmd *cobra.Command, _ []string) error {
			if t.timeout < 0 {
				return usage(cmd, fmt.Errorf("--timeout %s is less than no time: want 0 or more", t.timeout))
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
		"how long ashored may take to answer, 4m for what writes to the store and 40s for a revocation unless it is set; 0: for ever")
	root.PersistentFlags().VarP(&t.output, "output", "o", "table for people, json or yaml for programs")
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error { return usage(cmd, wanted(err)) })
	root.SetVersionTemplate("{{.Name}} {{.Version}}\n")
	must(root.RegisterFlagCompletionFunc("output", cobra.FixedCompletions([]string{"table", "json", "yaml"},
		cobra.ShellCompDirectiveNoFileComp)))
	addGroup(root, "inspect", "Inspect:", t.statusCommand(), t.sourcesCommand(), t.problemsCommand(),
		t.getCommand(), t.dumpCommand(), t.authzCommand(), t.auditCommand())
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
