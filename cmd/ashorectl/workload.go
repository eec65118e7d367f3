package main

import (
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/ashore-mesh/ashore/internal/admin"
)

func (t *tool) workloadCommand() *cobra.Command {
	restore := t.changeWorkloadCommand("restore", "restored", admin.CallRestore)
	restore.Short = "Undo the revocation of a workload or an identity"
	revoke := t.changeWorkloadCommand("revoke", "revoked", admin.CallRevoke)
	revoke.Short = "Revoke a workload (NAMESPACE/NAME) or an identity, with immediate effect"
	return group("workload", "List workloads and revoke their identities", t.listWorkloadsCommand(), revoke, restore)
}

func (t *tool) listWorkloadsCommand() *cobra.Command {
	return sends(t, &cobra.Command{
		Use:   "list",
		Short: "Show workloads with their identities and certificates, and all revocations",
		Example: `  ashorectl workload list
  ashorectl workload list -o yaml
  ashorectl workload list -o json | jq -r '.workloads[] | select(.revoked).name'`,
	}, admin.CallWorkloads, &admin.None{}, workloadsText)
}

func workloadsText(list admin.WorkloadList) string {
	if len(list.Workloads)+len(list.Revocations) == 0 {
		return "none: \"ashorectl join-token create\" prints the commands with which a machine joins\n"
	}
	workloads := newTable("NAME", "IDENTITY", "GROUP", "JOINED", "CERTIFICATE", "SERIAL", "PROXIES")
	unhealthy := newTable("UNHEALTHY", "SINCE", "WHY")
	for _, x := range list.Workloads {
		certificate, serial := certificateState(x)
		workloads.add(x.Name, x.Identity, x.Group, age(x.Joined), certificate, serial, strings.Join(x.Proxies, ", "))
		if h := x.Health; h != nil && !h.Healthy {
			unhealthy.add(x.Name, age(h.At), h.Reason)
		}
	}
	revocations := newTable("REVOKED", "SINCE", "BY", "REASON")
	for _, r := range list.Revocations {
		revocations.add(r.Name, age(r.At), r.By, r.Reason)
	}
	return sections(workloads.String(), unhealthy.String(), revocations.String())
}

// certificateState returns the state and the serial number of the latest certificate.
func certificateState(x admin.Workload) (state, serial string) {
	state = "expired"
	if n := len(x.Leaves); n > 0 {
		latest := x.Leaves[n-1]
		serial = latest.Serial
		if time.Until(latest.NotAfter) > 0 {
			state = "expires " + when(latest.NotAfter)
		}
	}
	if x.Revoked {
		state = "revoked"
	}
	return state, serial
}

// changeWorkloadCommand returns the command "revoke" or "restore".
func (t *tool) changeWorkloadCommand(verb, done string,
	call admin.Call[admin.RevokeRequest, admin.Revoked]) *cobra.Command {
	var q admin.RevokeRequest
	cmd := &cobra.Command{
		Use: verb + " NAMESPACE/NAME|spiffe://…",
		Example: strings.ReplaceAll(`  ashorectl workload VERB shop/web-1 --reason 'lost machine'
  ashorectl workload VERB spiffe://cluster.local/ns/shop/sa/web
  ashorectl workload VERB shop/web-2 -o json`, "VERB", verb),
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			q.Name = args[0]
			return show(t, cmd, call, q, func(r admin.Revoked) string {
				text := fmt.Sprintf("%s is %s\n", r.Name, done)
				if len(r.Workloads) > 0 && r.Workloads[0] != r.Name {
					text += "workloads: " + strings.Join(r.Workloads, ", ") + "\n"
				}
				for _, note := range r.Notes {
					text += note + "\n"
				}
				return text
			})
		},
	}
	cmd.Flags().StringVar(&q.Reason, "reason", "", "reason for the audit log and \"workload list\"")
	if verb == "revoke" {
		cmd.Flags().BoolVar(&q.Force, "force", false, "revoke an identity that no workload has yet")
	}
	return cmd
}
