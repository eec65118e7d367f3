package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/ashore-mesh/ashore/internal/admin"
)

func (t *tool) workloadCommand() *cobra.Command {
	return group("workload", "List and revoke workloads",
		`A workload is a program on a machine that has joined and has a certificate. A revocation takes effect within a second:
other workloads refuse its requests, also on open connections, and it gets no certificate and no configuration.`,
		"  ashorectl workload list\n  ashorectl workload revoke shop/web-1 --reason 'the machine was stolen'",
		t.listWorkloadsCommand(),
		t.changeWorkloadCommand("revoke", "Revoke a workload, an identity or a certificate",
			`revoke takes effect at once, until "restore". WHAT is
  NAMESPACE/NAME  one workload as "ashorectl workload list" names it: its certificates and its renewal
  spiffe://…      an identity: every workload that has it, also those that join later
  serial:HEX      one certificate; the workload can get another
Revoking it again is not an error. It needs the role operator.`,
			"  ashorectl workload revoke shop/web-1 --reason 'stolen'\n  ashorectl workload revoke spiffe://cluster.local/ns/shop/sa/web\n  ashorectl workload revoke serial:4f1d2c",
			"revoked", (*admin.Client).Revoke),
		t.changeWorkloadCommand("restore", "Undo a revocation",
			`restore undoes a revocation of the same name: NAMESPACE/NAME, spiffe://… or serial:HEX, as "ashorectl workload list"
shows it. It needs the role operator.`,
			"  ashorectl workload restore shop/web-1 --reason 'found again'",
			"restored", (*admin.Client).Restore))
}

func (t *tool) listWorkloadsCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "list",
		Short: "Show workloads, their certificates, and what is revoked",
		Long: `list shows every workload with its identity, its certificate and its connected proxies. Below are names that several
machines use at once, workloads that are unhealthy and so no endpoints, and revocations with their reasons.`,
		Example: "  ashorectl workload list\n  ashorectl workload list -o json | jq -r '.workloads[] | select(.revoked) | .name'",
		Args:    atMost(0),
		RunE: func(cmd *cobra.Command, _ []string) error {
			list, err := ask(t, cmd, (*admin.Client).Workloads)
			if err != nil {
				return err
			}
			return t.output.write(cmd.OutOrStdout(), list, func(w io.Writer) error {
				return workloadTables(w, list,
					time.Now())
			})
		},
		ValidArgsFunction: cobra.NoFileCompletions,
	}
}

func workloadTables(w io.Writer, list admin.WorkloadList, now time.Time) error {
	if len(list.Workloads) == 0 {
		if _, err := fmt.Fprintln(w, "no workload has joined: \"ashorectl join-token create\" prints how"); err != nil {
			return err
		}
	} else if err := columns(w, []string{"NAME", "IDENTITY", "GROUP", "JOINED", "CERTIFICATE", "SERIAL",
		"PROXIES"}, workloadRows(list.Workloads, now)); err != nil {
		return err
	}
	if err := errors.Join(warnings(w, list.Workloads), unwellTable(w, list.Workloads, now)); err != nil {
		return err
	}
	if len(list.Revocations) == 0 {
		return nil
	}
	if _, err := fmt.Fprintln(w); err != nil {
		return err
	}
	var rows [][]string
	for _, r := range list.Revocations {
		rows = append(rows, []string{r.Kind, r.Name, ago(now, r.At), orDash(r.By), orDash(r.Reason)})
	}
	return columns(w, []string{"REVOKED", "NAME", "SINCE", "BY", "REASON"}, rows)
}

// warnings says of which workloads an operator should see to something; nothing where there are
// none.
func warnings(w io.Writer, list []admin.Workload) error {
	var rows [][]string
	for _, x := range list {
		if x.Warning != "" {
			rows = append(rows, []string{x.Name, printable(x.Warning)})
		}
	}
	if len(rows) == 0 {
		return nil
	}
	if _, err := fmt.Fprintln(w); err != nil {
		return err
	}
	return columns(w, []string{"WARNING", "WHAT"}, rows)
}

// unwellTable shows the workloads that are no endpoints, in the words of their agents; nothing
// where there are none.
func unwellTable(w io.Writer, list []admin.Workload, now time.Time) error {
	var rows [][]string
	for _, x := range list {
		if h := x.Health; h != nil && !h.Healthy {
			rows = append(rows, []string{x.Name, ago(now, h.At), orDash(printable(h.Reason))})
		}
	}
	if len(rows) == 0 {
		return nil
	}
	if _, err := fmt.Fprintln(w); err != nil {
		return err
	}
	return columns(w, []string{"NOT WELL", "SINCE", "WHY"}, rows)
}

func workloadRows(list []admin.Workload, now time.Time) [][]string {
	var rows [][]string
	for _, x := range list {
		certificate, serial := "ended", "-"
		if n := len(x.Leaves); n > 0 {
			serial = x.Leaves[n-1].Serial
			switch latest := x.Leaves[n-1]; {
			case latest.Revoked:
				certificate = "revoked"
			case latest.NotAfter.After(now):
				certificate = "ends in " + span(latest.NotAfter.Sub(now))
			}
		}
		if x.Revoked {
			certificate = "REVOKED"
		}
		rows = append(rows, []string{x.Name, x.Identity, orDash(x.Group), ago(now, x.Joined), certificate, serial,
			orDash(strings.Join(x.Proxies, ", "))})
	}
	return rows
}

// revokeTime is how long a revocation may take: a shared store that hangs is waited for some 20s,
// and then it is in force without.
const revokeTime = 40 * time.Second

// changeWorkloadCommand is revoke or restore.
func (t *tool) changeWorkloadCommand(verb, short, long, example, done string,
	do func(*admin.Client, context.Context, admin.RevokeRequest) (admin.Revoked, error)) *cobra.Command {
	var reason string
	var force bool
	cmd := &cobra.Command{
		Use: verb + " WHAT", Short: short, Long: long, Example: example,
		Args: between(1, 1, func(*cobra.Command) string {
			return "WHAT is missing: want NAMESPACE/NAME, spiffe://… or serial:HEX; \"ashorectl workload list\" shows them"
		}),
		RunE: func(cmd *cobra.Command, args []string) error {
			q, err := revokeRequest(args[0])
			if err != nil {
				return usage(cmd, err)
			}
			q.Reason, q.Force = reason, force
			t.patient(cmd, revokeTime)
			answer, err := ask(t, cmd, func(c *admin.Client, ctx context.Context) (admin.Revoked,
				error) {
				return do(c, ctx, q)
			})
			if err != nil {
				return err
			}
			return t.output.write(cmd.OutOrStdout(), answer, func(w io.Writer) error {
				return revokedText(w, answer,
					done)
			})
		},
		ValidArgsFunction: offerFirst(func(ctx context.Context) ([]string, cobra.ShellCompDirective) {
			return t.completeWorkloads(ctx, verb == "restore")
		}),
	}
	cmd.Flags().StringVar(&reason, "reason", "", "reason, for the audit log and the list of workloads")
	if verb == "revoke" {
		cmd.Flags().BoolVar(&force, "force", false, "revoke an identity that no workload has yet")
	}
	return cmd
}

// serialPrefix marks the serial number of a certificate.
const serialPrefix = "serial:"

// revokeRequest is what an argument names.
func revokeRequest(what string) (admin.RevokeRequest, error) {
	if strings.HasPrefix(what, "spiffe://") {
		return admin.RevokeRequest{Identity: what}, nil
	}
	if serial, ok := strings.CutPrefix(what, serialPrefix); ok {
		serial = strings.ToLower(strings.ReplaceAll(serial, ":", "")) // as openssl shows it
		if serial == "" || strings.Trim(serial, "0123456789abcdef") != "" {
			return admin.RevokeRequest{}, fmt.Errorf("%q is not the serial number of a certificate: want hexadecimal digits, such as serial:4f1d2c", what)
		}
		return admin.RevokeRequest{Serial: serial}, nil
	}
	namespace, name, ok := strings.Cut(what, "/")
	if !ok || namespace == "" || name == "" || strings.Contains(name, "/") {
		return admin.RevokeRequest{}, fmt.Errorf("%q names nothing to revoke: want NAMESPACE/NAME, spiffe://… or serial:HEX", what)
	}
	return admin.RevokeRequest{Workload: what}, nil
}

func revokedText(w io.Writer, r admin.Revoked, done string) error {
	if _, err := fmt.Fprintf(w, "%s %s is %s\n", r.Kind, r.Name, done); err != nil {
		return err
	}
	if len(r.Workloads) > 0 && r.Kind != "workload" {
		if _, err := fmt.Fprintf(w, "concerned: %s\n", strings.Join(r.Workloads, ", ")); err != nil {
			return err
		}
	}
	for _, note := range r.Notes {
		if _, err := fmt.Fprintln(w, note); err != nil {
			return err
		}
	}
	return nil
}

// completeWorkloads offers workloads, or what is revoked.
func (t *tool) completeWorkloads(ctx context.Context, revoked bool) ([]string, cobra.ShellCompDirective) {
	return offer(ctx, t, (*admin.Client).Workloads, func(list admin.WorkloadList) (out []string) {
		if !revoked {
			for _, x := range list.Workloads {
				out = append(out, x.Name)
			}
			return out
		}
		for _, r := range list.Revocations {
			name := r.Name
			if r.Kind == "serial" {
				name = serialPrefix + name
			}
			out = append(out, name)
		}
		return out
	})
}
