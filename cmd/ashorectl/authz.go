package main

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/ashore-mesh/ashore/internal/admin"
)

func (t *tool) authzCommand() *cobra.Command {
	return group("authz", "Examine authorization", t.explainCommand())
}

func (t *tool) explainCommand() *cobra.Command {
	var q admin.ExplainRequest
	cmd := &cobra.Command{
		Use:   "explain FROM TO",
		Short: "Show which policy allows or denies a request; nothing is sent",
		Example: `  ashorectl authz explain shop/web shop/api --port 8080 --method POST --path /orders
  ashorectl authz explain anonymous api-1.shop --path /
  ashorectl authz explain spiffe://cluster.local/ns/shop/sa/web web.example:80 --host admin.example`,
		Args: cobra.ExactArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			q.From, q.To = args[0], args[1]
			return show(t, cmd, admin.CallExplain, q, func(e admin.Explanation) string {
				return explanationText(e, q.To)
			})
		},
		ValidArgsFunction: argument(1, t.proxyNames),
	}
	cmd.Flags().IntVar(&q.Port, "port", 0, "port of TO (default: all)")
	cmd.Flags().StringVar(&q.Method, "method", "", "HTTP method (default with --path or --host: GET)")
	cmd.Flags().StringVar(&q.Path, "path", "", "HTTP path (default with --method or --host: /)")
	cmd.Flags().StringVar(&q.Host, "host", "", "HTTP host (default: that of the service TO)")
	return cmd
}

func explanationText(e admin.Explanation, to string) string {
	texts := []string{fmt.Sprintf("%s: %s to %s\n", strings.ToUpper(e.Verdict), e.From, to)}
	for _, p := range e.Parts {
		texts = append(texts, fmt.Sprintf("%s, %s: %s\n%s\n", strings.Join(p.At, ", "), p.Call,
			strings.ToUpper(p.Verdict), p.Reason), policyTable(p.Steps))
	}
	for _, note := range e.Notes {
		texts = append(texts, note+"\n")
	}
	return sections(texts...)
}

func policyTable(steps []admin.ExplainStep) string {
	tb := newTable(" ", "ACTION", "POLICY", "MATCHES", "WHY", "READ FROM")
	for _, s := range steps {
		mark, matches := " ", "no"
		if s.Decides {
			mark = ">"
		}
		switch {
		case s.Matched:
			matches = fmt.Sprintf("rule %d", s.Rule)
		case s.Depends:
			matches = fmt.Sprintf("depends (rule %d)", s.Rule)
		}
		tb.add(mark, s.Action, s.Policy, matches, s.Why, s.Origin)
	}
	return tb.String()
}
