package main

import (
	"context"
	"errors"

	"github.com/spf13/cobra"

	"github.com/ashore-mesh/ashore/internal/admin"
)

func (t *tool) rollbackCommand() *cobra.Command {
	var namespace string
	var o admin.StoreOptions
	cmd := &cobra.Command{
		Use:   "rollback REVISION | rollback KIND NAME REVISION",
		Short: "Restore the store, or one object, to a revision",
		Long: `rollback restores all objects of the store, or with KIND and NAME one object, as they were at a revision. NAME may be
NAMESPACE/NAME. A rollback is a revision too, so another rollback undoes it. If somebody writes one of the objects at
the same moment, it is refused as a conflict. It needs the role operator.`,
		Example: "  ashorectl rollback 41 --dry-run\n  ashorectl rollback 41\n  ashorectl rollback virtualservice shop/web 38",
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) == 1 || len(args) == 3 {
				return nil
			}
			return usage(cmd, errors.New("want a REVISION, such as \"ashorectl rollback 41\", or KIND NAME REVISION; \"ashorectl history\" shows the revisions"))
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			r := admin.RollbackRequest{Revision: args[len(args)-1]}
			if len(args) == 3 {
				var err error
				if r.Ref, err = oneObject(cmd, args[:2], namespace); err != nil {
					return err
				}
			}
			return t.write(cmd, o, func(c *admin.Client, ctx context.Context) (admin.Written,
				error) {
				return c.Rollback(ctx, r, o)
			})
		},
		ValidArgsFunction: func(cmd *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
			return t.completeRollback(cmd, args, namespace)
		},
	}
	storeFlags(cmd, &o)
	cmd.Flags().StringVarP(&namespace, "namespace", "n", "", "namespace of the object")
	must(cmd.RegisterFlagCompletionFunc("namespace", cobra.NoFileCompletions))
	return cmd
}

// completeRollback offers revisions, or kinds, names and then the revisions of that object.
func (t *tool) completeRollback(cmd *cobra.Command, args []string, namespace string) ([]string,
	cobra.ShellCompDirective) {
	q := admin.HistoryRequest{Limit: 20}
	switch len(args) {
	case 0:
	case 1:
		return t.completeStored(cmd.Context(), args, namespace)
	case 2:
		var err error
		if q.Ref, err = oneObject(cmd, args, namespace); err != nil {
			return nil, cobra.ShellCompDirectiveError
		}
	default:
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	words, what := offer(cmd.Context(), t, func(c *admin.Client, ctx context.Context) (admin.StoreHistory,
		error) {
		return c.History(ctx, q)
	},
		func(h admin.StoreHistory) (out []string) {
			for _, r := range h.Revisions {
				out = append(out, r.Revision)
			}
			return out
		})
	if len(args) == 0 {
		words, what = append(words, kinds()...), cobra.ShellCompDirectiveNoFileComp
	}
	return words, what
}
