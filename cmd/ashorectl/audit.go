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
	return group("audit", "Read the audit log",
		`ashored writes down who made and used tokens and certificates, who was refused and why, who revoked what, who wrote
configuration to the store, in files or by a reload of the settings, which readers got configuration and who read
dumps: audit.jsonl in its state folder, which is only ever appended to.`,
		"  ashorectl audit tail\n  ashorectl audit tail -f", t.auditTailCommand())
}

func (t *tool) auditTailCommand() *cobra.Command {
	var n int
	var follow bool
	cmd := &cobra.Command{
		Use:   "tail",
		Short: "Show the latest events, and with -f those that come",
		Long: `tail shows the latest events of the audit log, the oldest first, and with -f goes on until it is interrupted. A
refusal is told in full here, where the one who was refused was told less. It needs the role operator.

With -o json every event is one line of JSON, as in the file.`,
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
	cmd.Flags().IntVarP(&n, "lines", "n", 20, "how many of the latest events to show")
	cmd.Flags().BoolVarP(&follow, "follow", "f", false, "go on with what comes")
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
