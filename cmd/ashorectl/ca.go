package main

import (
	"fmt"
	"io"
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
				return show(t, cmd, admin.CallAuthority, admin.None{}, authorityText)
			}
			a, err := ask(t, cmd, admin.CallAuthority, admin.None{})
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
	cmd := sends(t, &cobra.Command{
		Use:   "rotate",
		Short: "Start to replace the root certificate, or retire the old one at once",
		Example: `  ashorectl ca rotate --reason yearly
  ashorectl ca show
  ashorectl ca rotate --force --reason 'the old key was copied'`,
	}, admin.CallRotate, &q, authorityText)
	cmd.Flags().BoolVar(&q.Force, "force", false, "retire the old root, without the workloads that still need it")
	cmd.Flags().StringVar(&q.Reason, "reason", "", "reason for the audit log")
	return cmd
}

func (t *tool) replicaTokenCommand() *cobra.Command {
	var q admin.ReplicaTokenRequest
	cmd := sends(t, &cobra.Command{
		Use:   "replica-token",
		Short: "Create a one-time token for another replica of ashored",
		Example: `  ashorectl ca replica-token > replica-token
  ashorectl ca replica-token --ttl 15m
  ashorectl ca show`,
	}, admin.CallCreateReplicaToken, &q, func(made admin.ReplicaToken) string { return made.Token + "\n" })
	ttlFlag(cmd, &q.TTL)
	return cmd
}

func ttlFlag(cmd *cobra.Command, ttl *string) {
	cmd.Flags().StringVar(ttl, "ttl", "1h", "how long the token is valid, such as 15m or 24h")
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
	if r.Since.IsZero() {
		return ""
	}
	text := fmt.Sprintf("Rotation: it began %s. The new root signs, and both are trusted\n", when(r.Since))
	if r.Count == 0 {
		return text
	}
	text += fmt.Sprintf("The old root is still needed by %d", r.Count)
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
