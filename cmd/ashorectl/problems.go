package main

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/ashore-mesh/ashore/analyze"
	"github.com/ashore-mesh/ashore/internal/admin"
	"github.com/ashore-mesh/ashore/internal/feed"
)

func (t *tool) problemsCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "problems",
		Short: "Show the problems of the configuration and what to do; exit with 1 if there is an error",
		Example: `  ashorectl problems
  ashorectl problems -o json | jq -r '.[] | "\(.file):\(.line)"'
  watch ashorectl problems`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			list, err := ask(t, cmd, admin.CallProblems, admin.None{})
			if err != nil {
				return err
			}
			return t.report(cmd, list, "no problems")
		},
	}
}

// report prints problems, errors first, or the text none. It returns errFound if one is an error.
func (t *tool) report(cmd *cobra.Command, list []feed.Problem, none string) error {
	list = append([]feed.Problem{}, list...) // JSON has [], not null
	slices.SortStableFunc(list, func(a, b feed.Problem) int {
		return cmp.Or(cmp.Compare(a.Severity, b.Severity), cmp.Compare(a.File, b.File), cmp.Compare(a.Line, b.Line))
	})
	var texts []string
	for _, p := range list {
		texts = append(texts, problemText(p, ""))
	}
	return t.printProblems(cmd, list, list, texts, none)
}

// printProblems prints v, or texts with the number of problems, or none.
func (t *tool) printProblems(cmd *cobra.Command, v any, list []feed.Problem, texts []string, none string) error {
	n := map[feed.Severity]int{}
	for _, p := range list {
		n[p.Severity]++
	}
	total := fmt.Sprintf("%s, %s", count(n[feed.Error], "error"), count(n[feed.Warning], "warning"))
	if n[analyze.Info] > 0 {
		total += ", " + count(n[analyze.Info], "note")
	}
	if len(list) == 0 {
		total = none
	}
	if err := t.print(cmd, v, sections(append(texts, total+"\n")...)); err != nil {
		return err
	}
	if n[feed.Error] > 0 {
		return errFound
	}
	return nil
}

// problemText returns one problem as a paragraph: severity and place, object and field, text.
func problemText(p feed.Problem, code analyze.Code) string {
	title := strings.ToUpper(string(p.Severity))
	if code != "" {
		title += fmt.Sprintf(" [%s]", code)
	}
	place := cmp.Or(p.File, p.Source, "-")
	if p.File != "" && p.Line > 0 {
		place += fmt.Sprintf(":%d", p.Line)
	}
	text := fmt.Sprintf("%s %s\n", title, place)
	if about := strings.TrimSpace(p.Object + "  " + p.Field); about != "" {
		text += "  " + about + "\n"
	}
	text += "  " + p.Text + "\n"
	if says := strings.Contains(p.Text, "active") || strings.Contains(p.Text, "in use"); p.Stale && !says {
		text += "  The last good version stays active.\n"
	}
	return text
}
