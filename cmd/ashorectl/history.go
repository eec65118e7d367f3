package main

import (
	"context"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/ashore-mesh/ashore/internal/admin"
)

// fewNames is how many objects of a revision a row names.
const fewNames = 3

func (t *tool) historyCommand() *cobra.Command {
	var namespace string
	var limit int
	var diff bool
	cmd := &cobra.Command{
		Use:   "history [KIND NAME]",
		Short: "Show the revisions of the store: who wrote what, and when",
		Long: `history lists the revisions of the store, the latest first. With KIND and NAME it shows those of one object, also of
a deleted one. NAME may be NAMESPACE/NAME. --diff shows how objects changed.`,
		Example: "  ashorectl history\n  ashorectl history virtualservice shop/web --diff\n  ashorectl history --limit 1 -o json",
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) == 1 {
				return usage(cmd, fmt.Errorf("NAME is missing: name the %s, such as shop/web, or no KIND for the whole store", args[0]))
			}
			return atMost(2)(cmd, args)
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			q := admin.HistoryRequest{Limit: limit, Differences: diff, All: t.output != table}
			if limit < 0 {
				return usage(cmd, fmt.Errorf("--limit %d: want 0 or more", limit))
			}
			if len(args) == 2 {
				var err error
				if q.Ref, err = oneObject(cmd, args, namespace); err != nil {
					return err
				}
			}
			h, err := ask(t, cmd, func(c *admin.Client, ctx context.Context) (admin.StoreHistory,
				error) {
				return c.History(ctx, q)
			})
			if err != nil {
				return err
			}
			return t.output.write(cmd.OutOrStdout(), h, func(w io.Writer) error {
				return historyText(w, h, diff,
					time.Now())
			})
		},
		ValidArgsFunction: func(cmd *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
			return t.completeStored(cmd.Context(), args, namespace)
		},
	}
	cmd.Flags().StringVarP(&namespace, "namespace", "n", "", "namespace of the object")
	cmd.Flags().IntVar(&limit, "limit", 20, "number of revisions to show; 0: all")
	cmd.Flags().BoolVar(&diff, "diff", false, "show how each object changed")
	must(cmd.RegisterFlagCompletionFunc("namespace", cobra.NoFileCompletions))
	must(cmd.RegisterFlagCompletionFunc("limit", cobra.NoFileCompletions))
	return cmd
}

// historyText is a history for people.
func historyText(w io.Writer, h admin.StoreHistory, diff bool, now time.Time) error {
	if len(h.Revisions) == 0 {
		_, err := fmt.Fprintf(w, "none; the store is at revision %s\n", h.Latest)
		return err
	}
	if diff {
		return historyDiff(w, h)
	}
	var rows [][]string
	for _, r := range h.Revisions {
		rows = append(rows, []string{r.Revision, r.When.Local().Format(time.DateTime), ago(now, r.When), orDash(r.Who),
			revisionGist(r)})
	}
	return columns(w, []string{"REVISION", "WHEN", "AGE", "WHO", "WHAT"}, rows)
}

// revisionGist is what a revision did, in a few words.
func revisionGist(r admin.StoreRevision) string {
	total := 0
	for _, n := range r.Count {
		total += n
	}
	if total == 1 && len(r.Changes) == 1 {
		return r.Changes[0].Action + " " + r.Changes[0].Ref.String()
	}
	var names []string
	for _, c := range r.Changes {
		if len(names) == fewNames {
			names = append(names, "…")
			break
		}
		names = append(names, c.Ref.String())
	}
	return countText(r.Count) + ": " + strings.Join(names, ", ")
}

// historyDiff shows revision by revision how objects changed.
func historyDiff(w io.Writer, h admin.StoreHistory) error {
	for i, r := range h.Revisions {
		if i > 0 {
			if _, err := fmt.Fprintln(w); err != nil {
				return err
			}
		}
		if _, err := fmt.Fprintf(w, "revision %s, %s, by %s: %s\n", r.Revision, r.When.Local().Format(time.DateTime),
			orDash(r.Who), countText(r.Count)); err != nil {
			return err
		}
		for _, c := range r.Changes {
			if _, err := io.WriteString(w, c.Difference); err != nil {
				return err
			}
		}
	}
	return nil
}
