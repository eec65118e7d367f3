package main

import (
	"context"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/ashore-mesh/ashore/internal/admin"
)

func (t *tool) forgetReplicaCommand() *cobra.Command {
	var reason string
	cmd := &cobra.Command{
		Use:   "forget-replica NAME",
		Short: "Take an ashored that will not come back off the list of replicas",
		Long: `forget-replica takes the record of another ashored out of the shared store: "ashorectl ca show" lists it no more, and a
rotation of the root does not wait for it. NAME is its ID, its name, its machine or its address, as "ashorectl ca show"
lists them. One that serves is not forgotten: stop it first. One that is started again is listed again.

It ends no trust: the intermediate of a replica whose machine fell into wrong hands is valid until it ends, or until the
root is rotated. It needs the role admin.`,
		Example: "  ashorectl ca forget-replica mesh-2 --reason 'the machine was given back'\n  ashorectl ca forget-replica 10.0.0.2:15012",
		Args: between(1, 1, func(*cobra.Command) string {
			return "NAME is missing: want the ID, the name, the machine or the address of a replica; \"ashorectl ca show\" lists them"
		}),
		RunE: func(cmd *cobra.Command, args []string) error {
			q := admin.ForgetReplicaRequest{Replica: args[0], Reason: reason}
			x, err := ask(t, cmd, func(c *admin.Client, ctx context.Context) (admin.Replica,
				error) {
				return c.ForgetReplica(ctx, q)
			})
			if err != nil {
				return err
			}
			return t.output.write(cmd.OutOrStdout(), x, func(w io.Writer) error {
				return forgottenText(w, x,
					time.Now())
			})
		},
		ValidArgsFunction: offerFirst(t.completeReplicas),
	}
	cmd.Flags().StringVar(&reason, "reason", "", "why, for the audit log")
	return cmd
}

// forgottenText tells of a replica that was forgotten.
func forgottenText(w io.Writer, x admin.Replica, now time.Time) error {
	if _, err := fmt.Fprintf(w, "replica %s is forgotten (%s, ID %s)\n", printable(orDash(x.Name)), printable(x.State),
		printable(x.ID)); err != nil {
		return err
	}
	if !x.Signer.NotAfter.After(now) {
		return nil
	}
	_, err := fmt.Fprintf(w, "Its intermediate stays valid for %s: where its machine fell into wrong hands, take its access to the store away and rotate the root.\n", span(x.Signer.NotAfter.Sub(now)))
	return err
}

// completeReplicas offers the IDs of those that do not serve.
func (t *tool) completeReplicas(ctx context.Context) ([]string, cobra.ShellCompDirective) {
	return offer(ctx, t, (*admin.Client).Authority, func(a admin.Authority) (out []string) {
		for _, x := range a.Replicas {
			if x.State != admin.ReplicaServing {
				out = append(out, x.ID)
			}
		}
		return out
	})
}
