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
	return group("ca", "See and change the certificate authority",
		`The certificate authority signs the certificates by which workloads know one another. Its root is what
everybody trusts; this control plane signs with an intermediate below it.`,
		"  ashorectl ca show\n  ashorectl ca rotate --reason 'yearly'",
		t.showCACommand(), t.rotateCACommand(), t.replicaTokenCommand())
}

func (t *tool) showCACommand() *cobra.Command {
	var pem bool
	cmd := &cobra.Command{
		Use:   "show",
		Short: "Show whom the mesh trusts, until when, and how far a rotation is",
		Long: `show tells which root certificates the mesh trusts, what this control plane signs with, until when they are
valid, and during a rotation of the root which step was done and what the next one waits for.

It lists the other replicas that are alive too.

With --pem it prints the root certificates that are trusted, and nothing else: for who verifies the control plane, such as
a pipeline or an API server that has configuration validated.`,
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
		Short: "Change the root, step by step, without a failed request",
		Long: `rotate begins a change of the root certificate. Its steps are distribute (all workloads get the new
root), activate (the new root signs) and retire (the old root is not trusted any more). ashored takes each step when no
proxy and no valid certificate depends on the one before. That takes as long as certificates live and machines are away;
"ashorectl ca show" lists what it waits for.

With --force STEP the next step is taken at once. What it waits for is cut off, and a machine that was away has
to join again. It needs the role admin.`,
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
		"do this step, the one that comes next, whatever it waits for: "+strings.Join(forcible(), ", "))
	must(cmd.RegisterFlagCompletionFunc("force", cobra.FixedCompletions(forcible(),
		cobra.ShellCompDirectiveNoFileComp)))
	cmd.Flags().StringVar(&q.Reason, "reason", "", "why, for the audit log")
	return cmd
}

func (t *tool) replicaTokenCommand() *cobra.Command {
	ttl := lifetime(time.Hour)
	cmd := &cobra.Command{
		Use:   "replica-token",
		Short: "Print a token by which one more ashored belongs to this mesh",
		Long: `replica-token makes a token for one more ashored that shares this one's store. Run it where the root's key is
(the replica that was started first), put what it prints into a file on the new machine, readable by ashored alone, and
name that file in the setting ca.replicaToken there. The new replica then gets an intermediate of its own; the root's key
stays where it is.

The token serves one replica once, and the file may be removed when it has started. Whoever has it can sign in the mesh's
name until it was used or has ended: pass it on as the root's key. It needs the role admin.`,
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
