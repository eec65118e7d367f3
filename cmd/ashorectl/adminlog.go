package main

import (
	"github.com/spf13/cobra"

	"github.com/ashore-mesh/ashore/internal/admin"
)

func (t *tool) adminCommand() *cobra.Command {
	return group("admin", "Manage the running ashored", t.adminLogCommand())
}

func (t *tool) adminLogCommand() *cobra.Command {
	var q admin.LogLevel
	cmd := sends(t, &cobra.Command{
		Use:   "log",
		Short: "Show or set the level of ashored's log, until it restarts or reloads its settings",
		Example: `  ashorectl admin log
  ashorectl admin log --level debug
  ashorectl admin log --level info`,
	}, admin.CallLogLevel, &q, func(l admin.LogLevel) string { return l.Level + "\n" })
	cmd.Flags().StringVar(&q.Level, "level", "", "trace, debug, info, warn or error")
	must(cmd.RegisterFlagCompletionFunc("level", words("trace", "debug", "info", "warn", "error")))
	return cmd
}
