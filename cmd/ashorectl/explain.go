package main

import (
	"cmp"
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/ashore-mesh/ashore/internal/admin"
)

func (t *tool) explainGroup() *cobra.Command {
	cmd := group("explain", "Explain a kind or a field, where a request goes, and response flags",
		t.explainRequestCommand(), t.explainFlagsCommand())
	cmd.Use = "explain KIND[.FIELD...]"
	cmd.Example = `  ashorectl explain virtualservice
  ashorectl explain vs.http.retries
  ashorectl explain request web-1.shop api.shop.svc.cluster.local`
	cmd.Args = cobra.MaximumNArgs(1)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if len(args) == 0 {
			return cmd.Help()
		}
		return t.explainKind(cmd, args[0])
	}
	cmd.ValidArgsFunction = words(kinds()...)
	return cmd
}

// explainedRequest is what happens to a request.
type explainedRequest struct {
	Proxy    string `json:"proxy"`
	Identity string `json:"identity,omitempty"`
	Request  string `json:"request"`
	// Outcomes has one for each destination of each route that may take the request, in the order in
	// which routes are tried.
	Outcomes []outcome `json:"outcomes"`
}

// outcome is what happens at one destination of one route.
type outcome struct {
	admin.Hop
	// Health is that of the service's endpoints, of all subsets; nil: it is not known.
	Health *admin.HealthCount `json:"health,omitempty"`
	// Policy is what the policies of the destination decide; nil: they are not asked.
	Policy *admin.Explanation `json:"policy,omitempty"`
	// PolicyUnknown is why the policies of the destination could not be evaluated; may be empty.
	PolicyUnknown string `json:"policyUnknown,omitempty"`
}

func (t *tool) explainRequestCommand() *cobra.Command {
	q := admin.RequestQuery{Headers: map[string]string{}}
	var headers map[string]string
	cmd := &cobra.Command{
		Use:   "request FROM HOST[:PORT]",
		Short: "Show where a request goes, and why it would fail; nothing is sent",
		Example: `  ashorectl explain request web-1.shop api.shop.svc.cluster.local
  ashorectl explain request shop/web api.example:8080 --method POST --path /orders
  ashorectl explain request web-1.shop api.example --header x-canary=true`,
		Args: cobra.ExactArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			q.From, q.Method = args[0], strings.ToUpper(q.Method)
			for name, value := range headers {
				q.Headers[strings.ToLower(name)] = value
			}
			if !strings.HasPrefix(q.Path, "/") {
				return usage(cmd, fmt.Errorf("--path %s: want a path that begins with /", q.Path))
			}
			var err error
			if strings.Contains(args[1], "/") {
				return usage(cmd, fmt.Errorf("%s: want HOST or HOST:PORT, not a URL; --path has the path", args[1]))
			}
			if q.Host, q.Port, err = hostPort(args[1]); err != nil {
				return usage(cmd, fmt.Errorf("%s: want HOST or HOST:PORT", args[1]))
			}
			e, err := t.explainRequest(cmd, q)
			if err != nil {
				return err
			}
			return t.print(cmd, e, requestText(e))
		},
		ValidArgsFunction: argument(0, t.proxyNames),
	}
	cmd.Flags().StringVar(&q.Method, "method", "GET", "HTTP method")
	cmd.Flags().StringVar(&q.Path, "path", "/", "HTTP path, with a query")
	cmd.Flags().StringToStringVar(&headers, "header", nil, "further header, `name=value`; can be repeated")
	return cmd
}

// hostPort splits HOST[:PORT]. The default is port 80.
func hostPort(to string) (host string, port uint32, err error) {
	host, text, err := net.SplitHostPort(to)
	if err != nil {
		return to, 80, nil
	}
	n, err := strconv.ParseUint(text, 10, 16)
	return host, uint32(n), err
}

// explainRequest asks for the routes of the caller, and for health and policies of each destination.
func (t *tool) explainRequest(cmd *cobra.Command, q admin.RequestQuery) (explainedRequest, error) {
	routed, err := ask(t, cmd, admin.CallRoute, q)
	out := explainedRequest{Proxy: routed.Proxy, Identity: routed.Identity, Outcomes: []outcome{},
		Request: fmt.Sprintf("%s %s:%d%s", q.Method, q.Host, q.Port, q.Path)}
	if err != nil {
		return out, err
	}
	for _, hop := range routed.Hops {
		o := outcome{Hop: hop}
		if err := t.explainUpstream(cmd, &o, q, routed.Identity); err != nil {
			return out, err
		}
		out.Outcomes = append(out.Outcomes, o)
	}
	return out, nil
}

// explainUpstream adds health and policies of the destination of o.
func (t *tool) explainUpstream(cmd *cobra.Command, o *outcome, q admin.RequestQuery, identity string) error {
	parts := strings.Split(o.Cluster, "|") // outbound|PORT|SUBSET|HOST
	if len(parts) != 4 {
		return nil
	}
	services, err := ask(t, cmd, admin.CallServices, admin.ServiceQuery{Host: parts[3]})
	switch {
	case errors.Is(err, admin.ErrNotFound):
		return nil // Reason says that there is no such cluster
	case err != nil:
		return err
	}
	o.Health = &services[0].Health
	if o.Code != 0 || services[0].Location == "MESH_EXTERNAL" {
		return nil
	}
	r := admin.ExplainRequest{From: "anonymous", To: parts[3] + ":" + parts[1]}
	if strings.HasPrefix(o.TLS, "mutual") {
		r.From = cmp.Or(identity, r.From)
	}
	if parts[2] != "" { // else the endpoints are all of the service
		r.Addresses = o.Addresses
	}
	if !o.Connection {
		r.Method, r.Path, r.Host = q.Method, o.Path, o.Host
	}
	policy, err := ask(t, cmd, admin.CallExplain, r)
	switch {
	case errors.Is(err, admin.ErrNotFound):
		o.PolicyUnknown = err.Error()
		o.Reason = cmp.Or(o.Reason, "the application answers, unless a policy denies it")
		return nil
	case err != nil:
		return fmt.Errorf("ask for the policies of %s: %w", parts[3], err)
	}
	o.Policy = &policy
	first := policy.Parts[0]
	switch {
	case policy.Verdict == "depends":
		o.Reason = "it depends: "
		if len(policy.Parts) > 1 {
			o.Reason = "it depends on the endpoint: at " + strings.Join(first.At, ", ") + ", "
		}
		o.Reason += first.Reason
	case policy.Verdict == "denied" && o.Connection:
		o.Reason = "the server closes the connection: " + first.Reason
	case policy.Verdict == "denied" && first.Closed:
		o.Code, o.Flags, o.Reason = 503, "UC", first.Reason
	case policy.Verdict == "denied":
		o.Code, o.Reason = 403, first.Reason
	}
	return nil
}

func requestText(e explainedRequest) string {
	texts := []string{fmt.Sprintf("%s (%s): %s\n", e.Proxy, cmp.Or(e.Identity, "no identity"), e.Request)}
	if len(e.Outcomes) == 0 {
		texts = append(texts, "The proxy has no route and no cluster for this host and port, and does not intercept "+
			"connections.\n"+
			"Is the port right, the service declared and visible (exportTo, Sidecar)? ashorectl get services\n")
	}
	for _, o := range e.Outcomes {
		texts = append(texts, outcomeText(o))
	}
	return sections(append(texts, "Envoy may also have ejected endpoints. Its access log shows the actual response;\n"+
		"ashorectl explain flags explains its response flags.\n")...)
}

func outcomeText(o outcome) string {
	var b strings.Builder
	title := cmp.Or(o.Reason, "the application answers")
	if o.Code != 0 {
		title = fmt.Sprintf("%s: %s", strings.TrimSpace(fmt.Sprint(o.Code, " ", o.Flags)), title)
	}
	b.WriteString(title + "\n")
	line := func(name, text string) {
		if text != "" {
			fmt.Fprintf(&b, "  %-11s%s\n", name, text)
		}
	}
	if o.If != "" {
		line("only if", o.If+" matches")
	}
	line("route", o.Route)
	line("options", o.Options)
	if o.Cluster == "" {
		return b.String()
	}
	line("cluster", fmt.Sprintf("%s (%d %%)", o.Cluster, o.Weight))
	endpoints := count(o.Endpoints, "endpoint") + " in use"
	if o.Health != nil {
		endpoints += fmt.Sprintf("; of the service %d healthy, %d unhealthy, %d draining", o.Health.Healthy,
			o.Health.Unhealthy, o.Health.Draining)
	}
	line("endpoints", endpoints)
	line("TLS", o.TLS)
	if o.PolicyUnknown != "" {
		line("policy", "unknown: "+o.PolicyUnknown)
	}
	if o.Policy != nil {
		for _, p := range o.Policy.Parts {
			line("policy", fmt.Sprintf("%s at %s: %s", strings.ToUpper(p.Verdict), strings.Join(p.At, ", "), p.Reason))
		}
	}
	return b.String()
}
