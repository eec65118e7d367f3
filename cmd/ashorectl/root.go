package main

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/ashore-mesh/ashore/internal/admin"
	"github.com/ashore-mesh/ashore/internal/build"
)

// tool has the flags of all commands.
type tool struct {
	socket  string
	timeout time.Duration
	output  string
}

func newRoot() *cobra.Command {
	t := &tool{}
	root := &cobra.Command{
		Use:   "ashorectl",
		Short: "Operate an Ashore mesh: inspect ashored, write configuration, let machines join",
		Example: `  ashorectl status
  ashorectl apply -f web.yaml
  ashorectl join-token create --group shop/web`,
		Version:           build.Read().String(),
		SilenceErrors:     true,
		SilenceUsage:      true,
		PersistentPreRunE: t.checkFlags,
	}
	root.PersistentFlags().StringVar(&t.socket, "socket", "",
		"admin socket of ashored (default: of a development run in this folder or above, else "+defaultSocket+")")
	root.PersistentFlags().DurationVar(&t.timeout, "timeout", time.Minute, "how long to wait for ashored; 0: no limit")
	root.PersistentFlags().StringVarP(&t.output, "output", "o", tableFormat,
		"table, json or yaml; \"get\" has wide and name, \"proxy-config\" has short")
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		if args := cmd.Flags().Args(); cmd.HasSubCommands() && cmd.ValidArgsFunction == nil && len(args) > 0 {
			return unknownCommand(cmd, args[0]) // whose flags are not known
		}
		return usage(cmd, err)
	})
	root.SetVersionTemplate("{{.Name}} {{.Version}}\n")
	root.CompletionOptions.SetDefaultShellCompDirective(cobra.ShellCompDirectiveNoFileComp)
	must(root.RegisterFlagCompletionFunc("output", words(formats()...)))
	must(root.MarkPersistentFlagFilename("socket", "sock"))
	addGroup(root, "inspect", "Inspect:", t.statusCommand(), t.proxyStatusCommand(), t.proxyConfigCommand(),
		t.sourcesCommand(), t.problemsCommand(), t.getCommand(), t.describeCommand(), t.explainGroup(),
		t.topCommand(), t.authzCommand(),
		t.auditCommand())
	addGroup(root, "configure", "Configure:", t.validateCommand(), t.analyzeCommand(), t.diffCommand(),
		t.applyCommand(), t.editCommand(), t.deleteCommand(), t.historyCommand(), t.rollbackCommand(),
		t.secretCommand(), t.vipCommand())
	addGroup(root, "identity", "Identity:", t.joinTokenCommand(), t.workloadCommand(), t.caCommand())
	addGroup(root, "control", "Control plane:", t.adminCommand())
	addGroup(root, "help", "Help:", t.versionCommand())
	root.SetHelpCommandGroupID("help")
	root.SetCompletionCommandGroupID("help")
	root.InitDefaultCompletionCmd()
	checkArguments(root)
	for _, c := range root.Commands() {
		c.SuggestFor = foreignWords()[c.Name()]
	}
	return root
}

// foreignWords are the words of istioctl and kubectl for each of our commands.
func foreignWords() map[string][]string {
	return map[string][]string{
		"apply":        {"create", "replace", "set"},
		"authz":        {"authn"},
		"describe":     {"service", "pod"},
		"edit":         {"patch", "label", "annotate"},
		"get":          {"services", "endpoints", "list", "ls"},
		"history":      {"rollout"},
		"join-token":   {"create-remote-secret", "token"},
		"proxy-config": {"internal-debug", "envoy-stats"},
		"proxy-status": {"remote-clusters", "proxies", "wait"},
		"rollback":     {"rollout", "undo", "revert"},
		"status":       {"verify-install", "info"},
		"top":          {"metrics", "stats"},
		"validate":     {"lint", "check"},
		"analyze":      {"precheck"},
	}
}

// foreignHints are the words of istioctl and kubectl that no command of ours is for, and what to do.
func foreignHints() map[string]string {
	const (
		leave   = "leave the word out, and write what follows it"
		install = "docs/install.md describes how to install and configure ashored"
		join    = "nothing is injected: machines join with \"ashorectl join-token create\" and \"ashore-agent join\""
		log     = "did you mean \"admin log\"?"
		ambient = "there is no ambient mode: each machine has an Envoy of its own, which \"proxy-config\" shows"
	)
	return map[string]string{
		"istioctl": leave, "kubectl": leave, "x": leave, "experimental": leave,
		"install": install, "uninstall": install, "upgrade": install, "manifest": install,
		"log": log, "logs": log,
		"kube-inject": join, "uninject": join, "check-inject": join,
		"waypoint": ambient, "ztunnel-config": ambient,
		"bug-report": "collect what \"status\", \"problems\" and \"proxy-config all PROXY\" print, and ashored's log",
		"dashboard":  "docs/runbook.md describes the dashboards for Grafana",
		"tag":        "there are no revisions of the control plane",
	}
}

// checkKind returns an error with what to do about a kind of Kubernetes or Istio that is not ours.
func checkKind(cmd *cobra.Command, kind string) error {
	const (
		workloads = "\"ashorectl workload list\" lists machines, and \"ashorectl get endpoints\" where services run"
		services  = "registries and ServiceEntries define them; \"ashorectl get services\" lists them and their origin"
	)
	hint, foreign := map[string]string{
		"pod": workloads, "pods": workloads, "nodes": workloads, "workloads": workloads,
		"services": services, "service": services, "svc": services,
		"endpoints": services, "endpoint": services, "ep": services,
		"secrets":    "\"ashorectl secret list\" lists them",
		"meshconfig": "docs/meshconfig.md describes its fields",
	}[strings.ToLower(kind)]
	if !foreign {
		return nil
	}
	return usage(cmd, fmt.Errorf("unknown kind %q: %s", kind, hint))
}

func (t *tool) checkFlags(cmd *cobra.Command, _ []string) error {
	allowed := []string{tableFormat, jsonFormat, yamlFormat}
	switch cmd.Name() {
	case "get":
		allowed = formats()
	case "proxy-config":
		allowed = append(allowed, "short")
	}
	switch {
	case t.timeout < 0:
		return usage(cmd, fmt.Errorf("--timeout %s: want 0 or more", t.timeout))
	case !slices.Contains(allowed, t.output):
		return usage(cmd, fmt.Errorf("-o %s: %s has %s", t.output, cmd.CommandPath(), strings.Join(allowed, ", ")))
	case t.output == "short": // as istioctl calls it
		t.output = tableFormat
	}
	return nil
}

// addGroup adds commands that the help of root lists together under title.
func addGroup(root *cobra.Command, id, title string, commands ...*cobra.Command) {
	root.AddGroup(&cobra.Group{ID: id, Title: title})
	for _, c := range commands {
		c.GroupID = id
		root.AddCommand(c)
	}
}

// group returns a command that only has subcommands. Its help has three examples or more: the first
// of each subcommand, and more of the last one if needed.
func group(name, short string, commands ...*cobra.Command) *cobra.Command {
	var examples []string
	for i, c := range commands {
		n := 1
		if i == len(commands)-1 {
			n = max(n, 4-len(commands))
		}
		examples = append(examples, strings.Split(c.Example, "\n")[:n]...)
	}
	cmd := &cobra.Command{Use: name, Short: short, Example: strings.Join(examples, "\n")}
	cmd.AddCommand(commands...)
	return cmd
}

// checkArguments makes cmd and its subcommands report wrong arguments as wrong usage. A command
// without Args has no arguments. A command that only has subcommands prints its help.
func checkArguments(cmd *cobra.Command) {
	for _, c := range cmd.Commands() {
		checkArguments(c)
	}
	if !cmd.Runnable() {
		cmd.RunE = func(cmd *cobra.Command, _ []string) error { return cmd.Help() }
	}
	check := cmd.Args
	if check == nil {
		check = cobra.NoArgs
	}
	cmd.Args = func(cmd *cobra.Command, args []string) error {
		err := check(cmd, args)
		switch {
		case err == nil:
			return nil
		case cmd.HasSubCommands() && cmd.ValidArgsFunction == nil:
			return unknownCommand(cmd, args[0])
		}
		return usage(cmd, fmt.Errorf("%w: want %s", err, cmd.UseLine()))
	}
}

// unknownCommand is the error of an unknown subcommand of cmd. It names similar ones.
func unknownCommand(cmd *cobra.Command, name string) error {
	text := fmt.Sprintf("unknown command %q for %q", name, cmd.CommandPath())
	if hint := foreignHints()[name]; hint != "" && !cmd.HasParent() {
		return usage(cmd, errors.New(text+": "+hint))
	}
	cmd.SuggestionsMinimumDistance = min(2, len(name)/3) // short words are similar to too many
	if similar := slices.Compact(cmd.SuggestionsFor(name)); len(similar) > 0 {
		text += `: did you mean "` + strings.Join(similar, `" or "`) + `"?`
	}
	return usage(cmd, errors.New(text))
}

// usageError is an invalid command line.
type usageError struct {
	command string // the command whose help to read
	err     error
}

func (e *usageError) Error() string { return e.err.Error() }
func (e *usageError) Unwrap() error { return e.err }

func usage(cmd *cobra.Command, err error) error { return &usageError{cmd.CommandPath(), err} }

// must panics on an error of the commands themselves, which no input can cause.
func must(err error) {
	if err != nil {
		panic(err)
	}
}

// ask sends one call to ashored. An invalid request is a usage error.
func ask[Q, A any](t *tool, cmd *cobra.Command, call admin.Call[Q, A], q Q) (answer A, err error) {
	c, err := t.client()
	if err != nil {
		return answer, err
	}
	answer, err = admin.Send(cmd.Context(), c, call, q)
	if errors.Is(err, admin.ErrInvalid) {
		err = usage(cmd, err)
	}
	return answer, err
}

// sends makes a command send q, which its flags fill in, and print the answer. It returns the command.
func sends[Q, A any](t *tool, cmd *cobra.Command, call admin.Call[Q, A], q *Q, text func(A) string) *cobra.Command {
	cmd.RunE = func(cmd *cobra.Command, _ []string) error { return show(t, cmd, call, *q, text) }
	return cmd
}

// show sends one call and prints the answer; text formats it for people.
func show[Q, A any](t *tool, cmd *cobra.Command, call admin.Call[Q, A], q Q, text func(A) string) error {
	answer, err := ask(t, cmd, call, q)
	if err != nil {
		return err
	}
	return t.print(cmd, answer, text(answer))
}

// client returns a client of the socket of --socket, or of the one that is found.
func (t *tool) client() (*admin.Client, error) {
	if t.socket != "" {
		return admin.NewClient(t.socket).Within(t.timeout), nil
	}
	path, err := findSocket(".", defaultSocket)
	if err != nil {
		return nil, fmt.Errorf("find the admin socket of ashored (or set --socket): %w", err)
	}
	return admin.NewClient(path).Within(t.timeout), nil
}
