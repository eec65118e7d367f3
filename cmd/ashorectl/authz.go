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
	return group("authz", "Ask why a request is allowed or denied",
		"Policies decide who may ask whom for what. \"explain\" tells which of them decides a request, and why.",
		"  ashorectl authz explain shop/web shop/api --method GET --path /orders", t.explainCommand())
}

func (t *tool) explainCommand() *cobra.Command {
	var q admin.ExplainRequest
	cmd := &cobra.Command{
		Use:   "explain FROM TO",
		Short: "Show which policy decides a request, and why",
		Long: `explain looks at the policies that are in use for TO and tells what they say to a request of FROM: the verdict, the
policy and the rule that decide, and of every other policy why it does not match. What a PeerAuthentication refuses
becomes no request: that is told first. Nothing is sent.

FROM is a workload's identity (spiffe://…), its namespace and service account (shop/web), its proxy (web-1.shop), which
need not be connected, or "anonymous" for a caller without certificate. Where some of the workloads of an identity are
revoked it is about the others: ask for a proxy then. TO is a connected proxy, the host of a service with a port
or without (web.example:80, or the number at which its workloads listen), a workload's namespace and name or service
account, or an address. With --method, --path or --host only ports that speak HTTP are asked. Without them a port that
speaks no HTTP is asked for a connection, and so is a proxy; others are asked for GET /. Where workloads or ports differ,
each is told of on its own.

Policies about hosts are asked for the host of the service that TO means. --host says which one the request names
instead, and which where TO is a proxy.`,
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
	cmd.Flags().IntVar(&q.Port, "port", 0, "port of TO that is asked (default: any)")
	cmd.Flags().StringVar(&q.Method, "method", "", "method of the HTTP request (default with --path or --host: GET)")
	cmd.Flags().StringVar(&q.Path, "path", "",
		"path of the HTTP request, as it is sent (default with --method or --host: /)")
	cmd.Flags().StringVar(&q.Host, "host", "",
		"host that the HTTP request names, with a port or without (default: that of the service TO)")
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
