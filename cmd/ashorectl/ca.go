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
	return group("ca", "Inspect and rotate the certificate authority",
		t.showCACommand(), t.rotateCACommand(), t.replicaTokenCommand())
}

func (t *tool) showCACommand() *cobra.Command {
	var pem bool
	cmd := &cobra.Command{
		Use:   "show",
		Short: "Show trusted roots, the signing certificate, replicas and the state of a rotation",
		Example: `  ashorectl ca show
  ashorectl ca show -o json | jq .rotation.waiting
  ashorectl ca show --pem > ashore-ca.pem`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if !pem {
				return show(t, cmd, (*admin.Client).Authority, authorityText)
			}
			a, err := ask(t, cmd, (*admin.Client).Authority)
			if err == nil {
				_, err = io.WriteString(cmd.OutOrStdout(), a.PEM)
			}
			return err
		},
	}
	cmd.Flags().BoolVar(&pem, "pem", false, "print only the trusted roots, as PEM")
	return cmd
}

func (t *tool) rotateCACommand() *cobra.Command {
	var q admin.RotateRequest
	steps := []string{"activate", "retire"}
	cmd := &cobra.Command{
		Use:   "rotate",
		Short: "Start to replace the root certificate, or force the next step",
		Example: `  ashorectl ca rotate --reason yearly
  ashorectl ca show
  ashorectl ca rotate --force activate --reason 'the old key was copied'`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if cmd.Flags().Changed("force") && !slices.Contains(steps, q.Force) {
				return usage(cmd, fmt.Errorf("--force %q: want %s", q.Force, strings.Join(steps, " or ")))
			}
			t.setWriteTimeout(cmd)
			return show(t, cmd, func(c *admin.Client, ctx context.Context) (admin.Authority, error) {
				return c.RotateAuthority(ctx, q)
			}, authorityText)
		},
	}
	cmd.Flags().StringVar(&q.Force, "force", "", "do the next `step` now, without those that it waits for: "+
		strings.Join(steps, ", "))
	must(cmd.RegisterFlagCompletionFunc("force", words(steps...)))
	cmd.Flags().StringVar(&q.Reason, "reason", "", "reason for the audit log")
	return cmd
}

func (t *tool) replicaTokenCommand() *cobra.Command {
	var ttl time.Duration
	cmd := &cobra.Command{
		Use:   "replica-token",
		Short: "Create a one-time token for another replica of ashored",
		Example: `  ashorectl ca replica-token > replica-token
  ashorectl ca replica-token --ttl 15m
  ashorectl ca show`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			t.setWriteTimeout(cmd)
			return show(t, cmd, func(c *admin.Client, ctx context.Context) (admin.ReplicaToken, error) {
				return c.CreateReplicaToken(ctx, admin.ReplicaTokenRequest{TTL: ttl.String()})
			}, func(made admin.ReplicaToken) string { return made.Token + "\n" })
		},
	}
	ttlFlag(cmd, &ttl)
	return cmd
}

// ttlFlag adds the flag --ttl. ashored checks its bounds; it takes zero for its default.
func ttlFlag(cmd *cobra.Command, ttl *time.Duration) {
	cmd.Flags().DurationVar(ttl, "ttl", time.Hour, "how long the token is valid, such as 15m or 24h")
	cmd.PreRunE = func(cmd *cobra.Command, _ []string) error {
		if *ttl <= 0 {
			return usage(cmd, errors.New("--ttl: want more than 0"))
		}
		return nil
	}
}

func authorityText(a admin.Authority) string {
	certificates := newTable("WHAT", "STATE", "EXPIRES", "RENEWED", "SUBJECT", "ROOT")
	add := func(what string, c admin.Certificate) {
		renewed := ""
		if time.Until(c.Renew) > 0 {
			renewed = when(c.Renew)
		}
		certificates.add(what, c.State, when(c.NotAfter), renewed, c.Subject, c.Root)
	}
	for _, root := range a.Roots {
		add("root", root)
	}
	add("signer", a.Signer)
	add("server", a.Server)
	replicas := newTable("REPLICA", "ADDRESS")
	for _, r := range a.Replicas {
		replicas.add(r.Name, r.Address)
	}
	texts := []string{fmt.Sprintf("%s (%s), trust domain %s\n", a.Kind, a.Folder, a.TrustDomain),
		certificates.String(), replicas.String()}
	for _, p := range a.Problems {
		texts = append(texts, "PROBLEM "+p+"\n")
	}
	return sections(append(texts, rotationText(a.Rotation))...)
}

func rotationText(r admin.Rotation) string {
	if r.Step == "" {
		return ""
	}
	text := fmt.Sprintf("Rotation: the step %s was done %s, the next one is %s\n", r.Step, when(r.Since), r.Next)
	if r.Count == 0 {
		return text
	}
	text += fmt.Sprintf("The next step waits for %d", r.Count)
	if !r.Until.IsZero() {
		text += ", at the latest until " + local(r.Until)
	}
	tb := newTable("WHAT", "NAME", "AT THE LATEST", "WHY")
	for _, x := range r.Waiting {
		tb.add(x.Kind, x.Name, when(x.Until), x.Reason)
	}
	text += ":\n" + tb.String()
	if more := r.Count - len(r.Waiting); more > 0 {
		text += fmt.Sprintf("and %d more\n", more)
	}
	return text
}
