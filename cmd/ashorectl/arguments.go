package main

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"
)

// atMost refuses further arguments, with the way that the command is used.
func atMost(n int) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) <= n {
			return nil
		}
		return usage(cmd, fmt.Errorf("%q is one argument too many: want %s", args[n], cmd.UseLine()))
	}
}

// between wants from least to most arguments; missing says what is, when there are too few.
func between(least, most int, missing func(*cobra.Command) string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) < least {
			return usage(cmd, errors.New(missing(cmd)))
		}
		return atMost(most)(cmd, args)
	}
}
