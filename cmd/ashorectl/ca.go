package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/ashore-mesh/ashore/internal/admin"
)

func (t *tool) caCommand() *cobra.Command {
	return group("ca", "Show and rotate the certificate authority",
		`The certificate authority signs the certificates of workloads. Workloads trust its root certificate. Each replica of
ashored signs with an intermediate certificate.`,
		"  ashorectl ca show\n  ashorectl ca rotate --reason 'yearly'",
		t.showCACommand(), t.rotateCACommand(), t.replicaTokenCommand())
}

func (t *tool) showCACommand() *cobra.Command {
	var pem bool
	cmd := &cobra.Command{
		Use:   "show",
		Short: "Show the trusted roots, the signing certificate and a rotation",
		Long: `show lists the trusted root certificates, the certificate that this replica signs with, the other replicas, and during a
rotation of the root what its next step waits for.

--pem prints the trusted root certificates, for clients that verify the control plane.`,
		Example: "  ashorectl ca show\n  ashorectl ca show -o json | jq '.rotation.waiting'\n  ashorectl ca show --pem >ashore-ca.pem\n  ashorectl ca show --pem | base64 -w0   for caBundle",
		Args:    atMost(0),
		RunE: func(cmd *cobra.Command, _ []string) error {
			a, err := ask(t, cmd, (*admin.Client).Authority)
			if err != nil {
				return err
			}
			if !pem {
				return t.authority(cmd.OutOrStdout(), a)
			}
			if a.PEM == "" {
				return errors.New("ashored is of an older version, which does not tell: its state folder has the file ca/root-cert.pem")
			}
			_, err = io.WriteString(cmd.OutOrStdout(), a.PEM)
			return err
		},
		ValidArgsFunction: cobra.NoFileCompletions,
	}
	cmd.Flags().BoolVar(&pem, "pem", false, "print the root certificates that are trusted, as PEM")
	return cmd
}

func (t *tool) rotateCACommand() *cobra.Command {
	var q admin.RotateRequest
	cmd := &cobra.Command{
		Use:   "rotate",
		Short: "Replace the root certificate step by step, without a failed request",
		Long: `rotate replaces the root certificate in three steps: distribute (workloads get the new root), activate (the new root
signs), retire (the old root is not trusted any more). ashored takes each step when no proxy and no valid certificate
depends on the previous one. "ashorectl ca show" lists what it waits for.

--force STEP takes the next step at once. Machines that did not receive the previous step have to join again. It needs
the role admin.`,
		Example: "  ashorectl ca rotate --reason 'yearly'\n  ashorectl ca show\n  ashorectl ca rotate --force activate --reason 'the old key was copied'",
		Args:    atMost(0),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if cmd.Flags().Changed("force") && !slices.Contains(forcible(), q.Force) {
				return usage(cmd, fmt.Errorf("--force %q is not a step: want %s", q.Force,
					strings.Join(forcible(), ", ")))
			}
			a, err := ask(t, cmd, func(c *admin.Client, ctx context.Context) (admin.Authority,
				error) {
				return c.RotateAuthority(ctx, q)
			})
			if err != nil {
				return err
			}
			return t.authority(cmd.OutOrStdout(), a)
		},
		ValidArgsFunction: cobra.NoFileCompletions,
	}
	cmd.Flags().StringVar(&q.Force, "force", "",
		"take this step now, without waiting: "+strings.Join(forcible(), ", "))
	must(cmd.RegisterFlagCompletionFunc("force", cobra.FixedCompletions(forcible(),
		cobra.ShellCompDirectiveNoFileComp)))
	cmd.Flags().StringVar(&q.Reason, "reason", "", "reason, for the audit log")
	return cmd
}

func (t *tool) replicaTokenCommand() *cobra.Command {
	ttl := lifetime(time.Hour)
	cmd := &cobra.Command{
		Use:   "replica-token",
		Short: "Print a token for one more replica of ashored",
		Long: `replica-token makes a token for a new ashored with the same shared store. Run it on the first replica, which has the
root's key. Put the output into a file on the new machine, readable by ashored only, and name it in the setting
ca.replicaToken. The new replica gets an intermediate certificate of its own.

The token can be used once. Until then, whoever has it can sign certificates of the mesh. It needs the role admin.`,
		Example: "  ashorectl ca replica-token --ttl 15m >replica-token\n  ashorectl ca show   lists the replicas",
		Args:    atMost(0),
		RunE: func(cmd *cobra.Command, _ []string) error {
			made, err := ask(t, cmd, func(c *admin.Client, ctx context.Context) (admin.ReplicaToken, error) {
				return c.CreateReplicaToken(ctx, admin.ReplicaTokenRequest{TTL: ttl.String()})
			})
			if err != nil {
				return err
			}
			return t.output.write(cmd.OutOrStdout(), made, func(w io.Writer) error {
				_, err := fmt.Fprintln(w, made.Token)
				return err
			})
		},
		ValidArgsFunction: cobra.NoFileCompletions,
	}
	cmd.Flags().Var(&ttl, "ttl", "how long the token can be used, "+lifetimeForm)
	return cmd
}

// forcible are the steps that can be done at once.
func forcible() []string { return []string{"activate", "retire"} }

func (t *tool) authority(w io.Writer, a admin.Authority) error {
	return t.output.write(w, a, func(w io.Writer) error { return authorityText(w, a, time.Now()) })
}

func authorityText(w io.Writer, a admin.Authority, now time.Time) error {
	if _, err := fmt.Fprintf(w, "%s (%s), trust domain %s\n\n", a.Kind, orDash(a.Folder), a.TrustDomain); err != nil {
		return err
	}
	var rows [][]string
	for _, r := range a.Roots {
		rows = append(rows, certificateRow("root", r, now))
	}
	rows = append(rows, certificateRow("signer", a.Signer, now), certificateRow("server", a.Server, now))
	if err := columns(w, []string{"WHAT", "STATE", "ENDS", "RENEWED", "SUBJECT", "ROOT"}, rows); err != nil {
		return err
	}
	if err := replicasTable(w, a.Replicas); err != nil {
		return err
	}
	for _, p := range a.Problems {
		if _, err := fmt.Fprintf(w, "\nPROBLEM %s\n", p); err != nil {
			return err
		}
	}
	return rotationText(w, a.Rotation, now)
}

// replicasTable shows the other replicas that are alive; nothing where there are none.
func replicasTable(w io.Writer, list []admin.Replica) error {
	if len(list) == 0 {
		return nil
	}
	if _, err := fmt.Fprintln(w); err != nil {
		return err
	}
	var rows [][]string
	for _, r := range list {
		rows = append(rows, []string{orDash(r.Name), orDash(r.Address)})
	}
	return columns(w, []string{"REPLICA", "ADDRESS"}, rows)
}

func certificateRow(what string, c admin.Certificate, now time.Time) []string {
	renewed := "-"
	if c.Renew.After(now) {
		renewed = "in " + span(c.Renew.Sub(now))
	}
	return []string{what, orDash(c.State), ends(c.NotAfter, now), renewed, orDash(c.Subject), orDash(c.Root)}
}

// ends is when something ends, or did.
func ends(at, now time.Time) string {
	switch {
	case at.IsZero():
		return "-"
	case at.After(now):
		return "in " + span(at.Sub(now))
	default:
		return "ended " + ago(now, at) + " ago"
	}
}

func rotationText(w io.Writer, r admin.Rotation, now time.Time) error {
	if r.Step == "" {
		return nil
	}
	if _, err := fmt.Fprintf(w, "\nRotation: %s was done %s ago, next is %s\n", r.Step, ago(now, r.Since),
		orDash(r.Next)); err != nil {
		return err
	}
	if r.Count == 0 {
		return nil
	}
	until := ", until they have done their part"
	if !r.Until.IsZero() {
		until = ", " + ends(r.Until, now) + " at the latest"
	}
	if _, err := fmt.Fprintf(w, "It waits for %d%s:\n", r.Count, until); err != nil {
		return err
	}
	var rows [][]string
	for _, x := range r.Waiting {
		rows = append(rows, []string{x.Kind, x.Name, ends(x.Until, now), x.Reason})
	}
	if err := columns(w, []string{"WHAT", "NAME", "AT THE LATEST", "WHY"}, rows); err != nil {
		return err
	}
	if more := r.Count - len(r.Waiting); more > 0 {
		_, err := fmt.Fprintf(w, "and %s\n", count(more, "other"))
		return err
	}
	return nil
}
