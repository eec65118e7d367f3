package main

import (
	"strings"

	"github.com/spf13/cobra"

	"github.com/ashore-mesh/ashore/internal/admin"
)

func (t *tool) vipCommand() *cobra.Command {
	return group("vip", "Manage virtual IPs", sends(t, &cobra.Command{
		Use:   "release",
		Short: "Release the virtual IPs of hosts that no replica has used for 7 days",
		Example: `  ashorectl vip release
  ashorectl vip release -o json
  ashorectl get services db.example.com`,
	}, admin.CallReleaseVIPs, &admin.None{}, func(r admin.ReleasedVIPs) string {
		return strings.Join(append([]string{"released " + count(len(r.Hosts), "host")}, r.Hosts...), "\n  ") + "\n"
	}))
}
