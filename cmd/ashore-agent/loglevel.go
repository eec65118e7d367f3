package main

import (
	"context"
	"strings"

	"github.com/spf13/cobra"

	"github.com/ashore-mesh/ashore/agent"
)

func (p *program) logCommand() *cobra.Command {
	return p.levelCommand("log", "Show or set the level of the agent's log, until the agent ends",
		"trace, debug, info, warn or error", `  ashore-agent log
  ashore-agent log --level debug
  ashore-agent log --level info --state /var/lib/ashore-agent/web-1.shop`, agent.LogLevel)
}

func (p *program) proxyLogCommand() *cobra.Command {
	return p.levelCommand("proxy-log", "Show or set the levels of Envoy's loggers, until Envoy ends",
		"a level for all loggers, such as debug, or `[logger:]level`s with commas", `  ashore-agent proxy-log
  ashore-agent proxy-log --level http:debug,rbac:debug
  ashore-agent proxy-log --level warning`, agent.ProxyLogLevel)
}

// levelCommand returns a command that calls set for the workload that has joined, or for each.
func (p *program) levelCommand(use, short, usage, example string,
	set func(ctx context.Context, state, level string) (string, error)) *cobra.Command {
	var state, level string
	cmd := command(use, short, "", example, func(ctx context.Context) error {
		states, err := stateFolders(state)
		if err != nil {
			return err
		}
		for _, s := range states {
			answer, err := set(ctx, s, level)
			if err != nil {
				return err
			}
			if err := p.say("%s:\n%s", s, strings.TrimSpace(answer)); err != nil {
				return err
			}
		}
		return nil
	})
	stateFlag(cmd, &state)
	cmd.Flags().StringVar(&level, "level", "", usage)
	return cmd
}
