package main

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/ashore-mesh/ashore/internal/admin"
	"github.com/ashore-mesh/ashore/internal/feed"
)

func (t *tool) problemsCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "problems",
		Short: "Show what is wrong with the configuration, and what to do",
		Long: `problems lists what is wrong with the configuration, the sources and the stores of ashored: where, which object and
field, and what to do. An invalid object does not take effect: its last good version stays active.

The exit code is 1 if there is an error, and 0 otherwise.`,
		Example: "  ashorectl problems\n  ashorectl problems -o json | jq -r '.[] | \"\\(.file):\\(.line)\"'",
		Args:    atMost(0),
		RunE: func(cmd *cobra.Command, _ []string) error {
			list, err := ask(t, cmd, (*admin.Client).Problems)
			if err != nil {
				return err
			}
			return t.report(cmd.OutOrStdout(), list, "no problems")
		},
		ValidArgsFunction: cobra.NoFileCompletions,
	}
}

// report writes problems, errors first; fine is what to say when there are none. Errors: errFound
// when one is an error.
func (t *tool) report(w io.Writer, list []feed.Problem, fine string) error {
	list = slices.Clone(list)
	slices.SortStableFunc(list, func(a, b feed.Problem) int {
		return cmp.Or(cmp.Compare(a.Severity, b.Severity), cmp.Compare(a.File, b.File), cmp.Compare(a.Line, b.Line))
	})
	if list == nil {
		list = []feed.Problem{} // [] for programs, not null
	}
	if err := t.output.write(w, list, func(w io.Writer) error { return problemText(w, list, fine) }); err != nil {
		return err
	}
	if slices.ContainsFunc(list, feed.Problem.IsError) {
		return errFound
	}
	return nil
}

// problemText is one paragraph a problem: a table's cells would be too narrow for sentences.
func problemText(w io.Writer, list []feed.Problem, fine string) error {
	if len(list) == 0 {
		_, err := fmt.Fprintln(w, fine)
		return err
	}
	for _, p := range list {
		if _, err := fmt.Fprint(w, paragraph(p)); err != nil {
			return err
		}
	}
	errs := feed.Errors(list)
	_, err := fmt.Fprintf(w, "%s, %s\n", count(errs, "error"), count(len(list)-errs, "warning"))
	return err
}

// paragraph is one problem: severity and place, object and field, what is wrong, what is in use.
func paragraph(p feed.Problem) string {
	var b strings.Builder
	place := p.Source
	if p.File != "" {
		place = p.File
		if p.Line > 0 {
			place += fmt.Sprintf(":%d", p.Line)
		}
	}
	fmt.Fprintf(&b, "%s %s\n", strings.ToUpper(string(p.Severity)), orDash(place))
	if about := strings.TrimSpace(p.Object + "  " + p.Field); about != "" {
		fmt.Fprintf(&b, "  %s\n", about)
	}
	fmt.Fprintf(&b, "  %s\n", p.Text)
	saysIt := strings.Contains(p.Text, "last good") || strings.Contains(p.Text, "still active") ||
		strings.Contains(p.Text, "stay active")
	if p.Stale && !saysIt {
		b.WriteString("  The last good version stays active.\n")
	}
	b.WriteString("\n")
	return b.String()
}
