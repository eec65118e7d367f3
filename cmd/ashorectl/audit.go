package main

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/ashore-mesh/ashore/internal/audit"
)

func (t *tool) auditCommand() *cobra.Command {
	return group("audit", "Show the audit log",
		`The audit log records tokens, certificates, joins, refusals, revocations, writes of configuration, reloads, readers
of configuration and proxy-config: who, what, when and why. It is the file audit.jsonl in the state folder.`,
		"  ashorectl audit tail\n  ashorectl audit tail -f", t.auditTailCommand())
}

func (t *tool) auditTailCommand() *cobra.Command {
	var n int
	var follow bool
	cmd := &cobra.Command{
		Use:   "tail",
		Short: "Show the latest events of the audit log",
		Long: `tail shows the latest events of the audit log, the oldest first. With -f it follows new events. With -o json each event
is one line of JSON, as in the file. It needs the role operator.`,
		Example: "  ashorectl audit tail -n 100\n  ashorectl audit tail -f -o json | jq 'select(.outcome != \"ok\")'",
		Args:    atMost(0),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if n < 0 {
				return usage(cmd, fmt.Errorf("-n %d: want 0 or more", n))
			}
			c, err := t.client()
			if err != nil {
				return err
			}
			w := cmd.OutOrStdout()
			return blamed(cmd, c.TailAudit(cmd.Context(), n, follow,
				func(e audit.Event) error { return t.event(w, e) }))
		},
		ValidArgsFunction: cobra.NoFileCompletions,
	}
	cmd.Flags().IntVarP(&n, "lines", "n", 20, "number of events to show")
	cmd.Flags().BoolVarP(&follow, "follow", "f", false, "follow new events")
	return cmd
}

// event writes one event: a line each, so that it can be followed.
func (t *tool) event(w io.Writer, e audit.Event) error {
	switch t.output {
	case jsonText:
		return json.NewEncoder(w).Encode(e)
	case yamlText:
		b, err := toYAML(e)
		if err == nil {
			_, err = fmt.Fprintf(w, "---\n%s", b)
		}
		return err
	default:
		_, err := fmt.Fprintln(w, eventLine(e))
		return err
	}
}

// eventLine is an event for people: when, what, to what, by whom, and how it ended.
func eventLine(e audit.Event) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s  %-20s", e.Time.Local().Format(time.DateTime), e.Action)
	if e.Outcome != audit.OK {
		fmt.Fprintf(&b, " %s", strings.ToUpper(e.Outcome))
	}
	if e.Target != "" {
		fmt.Fprintf(&b, " %s", printable(e.Target))
	}
	if e.Actor != "" {
		fmt.Fprintf(&b, " by %s", printable(e.Actor))
	}
	if e.Reason != "" {
		fmt.Fprintf(&b, ": %s", printable(e.Reason))
	}
	for _, k := range slices.Sorted(maps.Keys(e.Details)) {
		fmt.Fprintf(&b, " %s=%s", printable(k), printable(e.Details[k]))
	}
	return b.String()
}
