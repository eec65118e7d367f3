package main

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/ashore-mesh/ashore/internal/admin"
)

func (t *tool) historyCommand() *cobra.Command {
	var namespace string
	var q admin.HistoryRequest
	cmd := &cobra.Command{
		Use:   "history [KIND NAME]",
		Short: "Show the revisions of the store, or of one object: who wrote what, and when",
		Example: `  ashorectl history
  ashorectl history virtualservice shop/web --diff
  ashorectl history --limit 1 -o json`,
		Args: cobra.MaximumNArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) > 0 {
				var err error
				if q.Ref, err = objectRef(cmd, args, namespace); err != nil {
					return err
				}
			}
			return show(t, cmd, admin.CallHistory, q, func(h admin.StoreHistory) string {
				switch {
				case len(h.Revisions) == 0:
					return fmt.Sprintf("none; the store is at revision %s\n", h.Latest)
				case q.Differences:
					return historyDifferences(h)
				}
				return historyTable(h)
			})
		},
		ValidArgsFunction: t.kindAndName(true),
	}
	namespaceFlag(cmd, &namespace)
	cmd.Flags().IntVar(&q.Limit, "limit", 20, "number of revisions, the latest first; 0: all")
	cmd.Flags().BoolVar(&q.Differences, "diff", false, "show how each object changed, for 20 revisions at most")
	return cmd
}

func historyTable(h admin.StoreHistory) string {
	tb := newTable("REVISION", "WHEN", "AGE", "WHO", "WHAT")
	for _, r := range h.Revisions {
		tb.add(r.Revision, local(r.When), age(r.When), r.Who, changesText(r))
	}
	return tb.String()
}

// changesText names the change of a revision, or counts its changes and names the first ones.
func changesText(r admin.StoreRevision) string {
	const most = 3
	if len(r.Changes) == 1 {
		return r.Changes[0].Action + " " + r.Changes[0].Ref.String()
	}
	var names []string
	for _, c := range r.Changes[:min(len(r.Changes), most)] {
		names = append(names, c.Ref.String())
	}
	if len(r.Changes) > most {
		names = append(names, "…")
	}
	return countText(r.Changes) + ": " + strings.Join(names, ", ")
}

func historyDifferences(h admin.StoreHistory) string {
	var texts []string
	for _, r := range h.Revisions {
		text := fmt.Sprintf("revision %s, %s, by %s: %s\n", r.Revision, local(r.When), r.Who, countText(r.Changes))
		for _, c := range r.Changes {
			text += c.Difference
		}
		texts = append(texts, text)
	}
	return sections(texts...)
}
