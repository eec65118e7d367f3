package main

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/ashore-mesh/ashore/internal/audit"
)

func (t *tool) auditCommand() *cobra.Command {
	return group("audit", "Read the audit log", t.auditTailCommand())
}

func (t *tool) auditTailCommand() *cobra.Command {
	var n int
	var follow bool
	cmd := &cobra.Command{
		Use:   "tail",
		Short: "Show the latest events, the oldest first",
		Example: `  ashorectl audit tail -n 100
  ashorectl audit tail -f
  ashorectl audit tail -f -o json | jq 'select(.outcome != "ok")'`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := t.client()
			if err != nil {
				return err
			}
			return invalidIsUsage(cmd, c.TailAudit(cmd.Context(), n, follow, func(e audit.Event) error {
				return t.printEvent(cmd, e, eventLine(e))
			}))
		},
	}
	cmd.Flags().IntVarP(&n, "lines", "n", 20, "number of events")
	cmd.Flags().BoolVarP(&follow, "follow", "f", false, "then print new events")
	return cmd
}

// eventLine returns time, action, target, actor, result and details of an event.
func eventLine(e audit.Event) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s  %-20s", local(e.Time), e.Action)
	if e.Outcome != audit.OK {
		b.WriteString(" " + strings.ToUpper(e.Outcome))
	}
	parts := [][2]string{{" ", e.Target}, {" by ", e.Actor}, {": ", e.Reason}, {" ", pairs(e.Details, " ")}}
	for _, part := range parts {
		if part[1] != "" {
			b.WriteString(part[0] + part[1])
		}
	}
	return b.String()
}
