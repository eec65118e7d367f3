package main

import (
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
			v := versions{Client: build.Read()}
			server, err := ask(t, cmd, admin.CallVersion, admin.None{})
			switch {
			case err == nil:
				v.Server = &server
			case !errors.Is(err, admin.ErrNotRunning) || t.socket != "":
				return err
			}
			return t.print(cmd, v, v.text())
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
