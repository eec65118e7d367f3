package main

import (
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/ashore-mesh/ashore/internal/admin"
)

func (t *tool) vipCommand() *cobra.Command {
	return group("vip", "Manage virtual IPs",
		`Services without addresses of their own get virtual IPs, so that proxies can tell TCP connections to them apart. A host keeps
its virtual IP until it is released.`,
		"  ashorectl vip release",
		&cobra.Command{
			Use:     "release",
			Short:   "Release the virtual IPs of hosts that were not used for a week",
			Long:    `release frees the virtual IPs of hosts that no replica has used for 7 days, so that others can get them. It needs the role operator.`,
			Example: "  ashorectl vip release\n  ashorectl vip release -o json",
			Args:    atMost(0),
			RunE: func(cmd *cobra.Command, _ []string) error {
				out, err := ask(t, cmd, (*admin.Client).ReleaseVIPs)
				if err != nil {
					return err
				}
				return t.output.write(cmd.OutOrStdout(), out, func(w io.Writer) error {
					_, err := fmt.Fprintln(w, strings.Join(append([]string{"released " + count(len(out.Hosts), "host")},
						out.Hosts...), "\n  "))
					return err
				})
			},
			ValidArgsFunction: cobra.NoFileCompletions,
		})
}
