package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/ashore-mesh/ashore/internal/admin"
	"github.com/ashore-mesh/ashore/internal/build"
)

// versions is the answer of "version". Server is nil if ashored is not running.
type versions struct {
	Client admin.Version  `json:"client"`
	Server *admin.Version `json:"server,omitempty"`
}

func (t *tool) versionCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "Show the version of ashorectl, and of ashored if it is running",
		Example: `  ashorectl version
  ashorectl version -o json
  ashorectl --version`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return show(t, cmd, func(c *admin.Client, ctx context.Context) (versions, error) {
				v := versions{Client: build.Read()}
				server, err := c.Version(ctx)
				switch {
				case err == nil:
					v.Server = &server
				case errors.Is(err, admin.ErrNotRunning) && t.socket == "":
					err = nil
				}
				return v, err
			}, versions.text)
		},
	}
}

func (v versions) text() string {
	server := "not running"
	if v.Server != nil {
		server = v.Server.String()
	}
	return fmt.Sprintf("ashorectl  %s\nashored    %s\n", v.Client, server)
}
