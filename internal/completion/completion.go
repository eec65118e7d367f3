package completion

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"
)

// Refine adds the completion command to root, which has all other commands. The command rejects
// unknown shells, and arguments after a known one. noArgs rejects arguments. usage turns an error
// into a usage error, and returns nil for nil.
func Refine(root *cobra.Command, noArgs cobra.PositionalArgs, usage func(*cobra.Command, error) error) {
	root.InitDefaultCompletionCmd()
	for _, c := range root.Commands() {
		if c.Name() != "completion" {
			continue
		}
		c.Args = func(cmd *cobra.Command, args []string) error { return usage(cmd, shellNamed(cmd, args)) }
		c.RunE = func(cmd *cobra.Command, _ []string) error { return cmd.Help() }
		for _, shell := range c.Commands() {
			shell.Args = noArgs
		}
	}
}

// shellNamed rejects the name of an unknown shell.
func shellNamed(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	var known []string
	for _, c := range cmd.Commands() {
		known = append(known, c.Name())
	}
	return fmt.Errorf("there is no completion for %q: name one of %s", args[0], strings.Join(known, ", "))
}
