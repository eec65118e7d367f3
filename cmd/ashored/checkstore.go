package main

import (
	"github.com/spf13/cobra"

	"github.com/ashore-mesh/ashore/filestore/bolt"
	"github.com/ashore-mesh/ashore/internal/server"
)

func checkStoreCommand() *cobra.Command {
	return &cobra.Command{
		Use:    server.CheckStoreCommand + " PATH",
		Short:  "Check a store file; used by ashored itself after an unclean stop",
		Hidden: true,
		Args:   func(cmd *cobra.Command, args []string) error { return usage(cobra.ExactArgs(1)(cmd, args)) },
		RunE:   func(_ *cobra.Command, args []string) error { return bolt.Check(args[0]) },
	}
}
