package main

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/ashore-mesh/ashore/internal/admin"
	"github.com/ashore-mesh/ashore/internal/audit"
)

func (t *tool) auditCommand() *cobra.Command {
	return group("audit", "Read the audit log", t.auditTailCommand())
}

func (t *tool) auditTailCommand() *cobra.Command {
	var q admin.AuditQuery
	cmd := sends(t, &cobra.Command{
		Use:   "tail",
		Short: "Show the latest events, the oldest first",
		Example: `  ashorectl audit tail -n 100
  watch ashorectl audit tail
  ashorectl audit tail -n 1000 -o json | jq '.[] | select(.outcome != "ok")'`,
	}, admin.CallAudit, &q, func(events []audit.Event) string {
		text := ""
		for _, e := range events {
			text += printable(eventLine(e)) + "\n"
		}
		return text
	})
	cmd.Flags().IntVarP(&q.Lines, "lines", "n", 20, "number of events")
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
