package main

import (
	"errors"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/ashore-mesh/ashore/internal/admin"
	"github.com/ashore-mesh/ashore/internal/build"
)

// versions is the answer of the version command.
type versions struct {
	Client admin.Version  `json:"client"`
	Server *admin.Version `json:"server,omitempty"`
}

func (t *tool) versionCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "Show the versions of ashorectl and ashored",
		Args:  atMost(0),
		RunE: func(cmd *cobra.Command, _ []string) error {
			v := versions{Client: build.Read()}
			c, err := t.client()
			if err != nil {
				return err
			}
			switch server, err := c.Version(cmd.Context()); {
			case err == nil:
				v.Server = &server
			case !errors.Is(err, admin.ErrNotRunning) || t.socket != "": // a socket that was named is meant
				return err
			}
			return t.output.write(cmd.OutOrStdout(), v, func(w io.Writer) error { return versionText(w, v) })
		},
		ValidArgsFunction: cobra.NoFileCompletions,
	}
}

func versionText(w io.Writer, v versions) error {
	server := "not running"
	if v.Server != nil {
		server = v.Server.String()
	}
	_, err := fmt.Fprintf(w, "ashorectl  %s\nashored    %s\n", v.Client, server)
	return err
}
