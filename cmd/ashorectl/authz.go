package main

import (
	"context"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/ashore-mesh/ashore/internal/admin"
)

func (t *tool) authzCommand() *cobra.Command {
	return group("authz", "Explain why a request is allowed or denied",
		"\"explain\" shows which policy decides a request, and why.",
		"  ashorectl authz explain shop/web shop/api --method GET --path /orders", t.explainCommand())
}

func (t *tool) explainCommand() *cobra.Command {
	var q admin.ExplainRequest
	cmd := &cobra.Command{
		Use:   "explain FROM TO",
		Short: "Show which policy decides a request, and why",
		Long: `explain evaluates the active policies of TO for a request of FROM. It shows the result, the policy and rule that
decide, and why other policies do not match. No request is sent.

FROM is an identity (spiffe://…), a namespace and service account (shop/web), a proxy (web-1.shop), or "anonymous" for
a caller without a certificate. TO is a proxy, a host with or without a port (web.example:80), a workload's namespace
and name, or an address. If some workloads of an identity are revoked, the answer is about the others.

With --method, --path or --host, only HTTP ports are considered. Without them, TCP ports are considered as connections,
and HTTP ports as GET /. If workloads or ports differ, each has a result. --host is the host of the request; the default
is the host of TO.`,
		Example: `  ashorectl authz explain shop/web shop/api --port 8080 --method POST --path /orders
  ashorectl authz explain anonymous api-1.shop --method GET --path /
  ashorectl authz explain shop/web shop/api --host admin.example`,
		Args: between(2, 2, func(cmd *cobra.Command) string {
			return "FROM and TO are needed: want " + cmd.UseLine() + ", such as \"ashorectl authz explain shop/web shop/api\""
		}),
		RunE: func(cmd *cobra.Command, args []string) error {
			if q.Port < 0 || q.Port > 65535 {
				return usage(cmd, fmt.Errorf("--port %d is not a port: want 1 to 65535", q.Port))
			}
			q.From, q.To = args[0], args[1]
			e, err := ask(t, cmd, func(c *admin.Client, ctx context.Context) (admin.Explanation,
				error) {
				return c.Explain(ctx, q)
			})
			if err != nil {
				return err
			}
			return t.output.write(cmd.OutOrStdout(), e, func(w io.Writer) error { return explanationText(w, e) })
		},
		ValidArgsFunction: func(cmd *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
			if len(args) > 1 {
				return nil, cobra.ShellCompDirectiveNoFileComp
			}
			return t.completeProxies(cmd.Context())
		},
	}
	cmd.Flags().IntVar(&q.Port, "port", 0, "port of TO (default: all)")
	cmd.Flags().StringVar(&q.Method, "method", "", "method of the HTTP request (default with --path or --host: GET)")
	cmd.Flags().StringVar(&q.Path, "path", "",
		"path of the HTTP request (default with --method or --host: /)")
	cmd.Flags().StringVar(&q.Host, "host", "",
		"host of the HTTP request (default: the host of TO)")
	return cmd
}

func explanationText(w io.Writer, e admin.Explanation) error {
	if _, err := fmt.Fprintf(w, "%s: %s to %s\n%s\n", strings.ToUpper(e.Verdict), e.From, e.To, e.Reason); err != nil {
		return err
	}
	if err := stepsText(w, e.Steps); err != nil {
		return err
	}
	for _, p := range e.Parts {
		if _, err := fmt.Fprintf(w, "\n%s, %s: %s\n%s\n", strings.Join(p.At, ", "), p.Call, strings.ToUpper(p.Verdict),
			p.Reason); err != nil {
			return err
		}
		if err := stepsText(w, p.Steps); err != nil {
			return err
		}
	}
	for _, note := range e.Notes {
		if _, err := fmt.Fprintf(w, "\n%s\n", note); err != nil {
			return err
		}
	}
	return nil
}

// stepsText writes the policies that were looked at as a table; nothing when there are none.
func stepsText(w io.Writer, steps []admin.ExplainStep) error {
	if len(steps) == 0 {
		return nil
	}
	if _, err := fmt.Fprintln(w); err != nil {
		return err
	}
	return columns(w, []string{"", "ACTION", "POLICY", "MATCHES", "WHY", "READ FROM"}, explanationRows(steps))
}

func explanationRows(steps []admin.ExplainStep) [][]string {
	var rows [][]string
	for _, s := range steps {
		mark, matches := "", "no"
		if s.Decides {
			mark = ">"
		}
		if s.Matched {
			matches = "yes"
			if s.Rule >= 0 {
				matches = fmt.Sprintf("rule %d", s.Rule)
			}
		}
		rows = append(rows, []string{mark, s.Action, s.Policy, matches, orDash(s.Why), orDash(s.Origin)})
	}
	return rows
}
