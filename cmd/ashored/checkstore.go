package main

import (
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"github.com/ashore-mesh/ashore/filestore/bolt"
)

// checkStoreName is the hidden command by which ashored has a store file checked in a child
// process: reading a damaged one may take the process down.
const checkStoreName = "check-store"

func checkStoreCommand() *cobra.Command {
	return &cobra.Command{
		Use:    checkStoreName + " PATH",
		Short:  "Check a store file; used by ashored itself after an unclean stop",
		Hidden: true,
		Args:   func(cmd *cobra.Command, args []string) error { return usage(cobra.ExactArgs(1)(cmd, args)) },
		RunE:   func(_ *cobra.Command, args []string) error { return bolt.Check(args[0]) },
	}
}

// checkCommand is the command line of that child, without the path.
func checkCommand() ([]string, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("find this program, to check the store with it: %w", err)
	}
	return []string{self, checkStoreName}, nil
}
