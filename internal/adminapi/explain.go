package adminapi

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/net/http/httpguts"

	"github.com/ashore-mesh/ashore/ca"
	"github.com/ashore-mesh/ashore/internal/admin"
	"github.com/ashore-mesh/ashore/internal/spiffe"
	"github.com/ashore-mesh/ashore/push"
	"github.com/ashore-mesh/ashore/xds"
	"github.com/ashore-mesh/ashore/xds/authz"
	"github.com/ashore-mesh/ashore/xds/gen"
)

// Explainer explains what policies say of a request. The fields are set before use. Safe for
// concurrent use.
type Explainer struct {
	Published *Published
	// Proxies returns the connected proxies.
	Proxies func() []xds.ProxyStatus
	// Workloads returns the workloads that joined, with revoked ones. Nil: there is no certificate
	// authority.
	Workloads func(context.Context) ([]ca.Workload, error)
}

// Routes returns the route of the call that e answers.
func (e Explainer) Routes() []admin.Route {
	return []admin.Route{admin.Handle(admin.CallExplain, admin.Viewer, e.Explain)}
}

// Explain uses the active configuration. Errors: admin.ErrInvalid for a request that no client can
// send, or a request to a port that has connections alone; admin.ErrNotFound for an unknown target,
// admin.ErrConflict before there is any configuration.
func (e Explainer) Explain(ctx context.Context, r admin.ExplainRequest) (admin.Explanation, error) {
	c := e.Published.Context()
	if c == nil {
		return admin.Explanation{}, admin.NewError(admin.ErrConflict, "there is no configuration yet")
	}
	if err := checkRequest(r); err != nil {
		return admin.Explanation{}, err
	}
	who, err := e.caller(ctx, c, r.From)
	if err != nil {
		return admin.Explanation{}, err
	}
	out, err := e.explain(c, who, r)
	out.Notes = append(out.Notes, who.notes...)
	return out, err
}

// checkRequest refuses what no client can send. Errors: admin.ErrInvalid.
func checkRequest(r admin.ExplainRequest) error {
	other := func(more string) func(rune) bool {
		return func(c rune) bool { return c <= ' ' || c > '~' || strings.ContainsRune(more, c) }
	}
	switch {
	case r.From == "" || r.To == "":
		return admin.NewError(admin.ErrInvalid, "both from and to are needed")
	case r.Port < 0 || r.Port > 65535:
		return admin.NewError(admin.ErrInvalid, "%d is not a port: want 1 to 65535", r.Port)
	case r.Method != "" && (!httpguts.ValidHeaderFieldName(r.Method) || r.Method != strings.ToUpper(r.Method)):
		return admin.NewError(admin.ErrInvalid, "%.40q is not a method of HTTP: write GET, POST or another; "+
			"policies distinguish upper and lower case", r.Method)
	case strings.ContainsFunc(r.Host, other(`/?#@\`)):
		return admin.NewError(admin.ErrInvalid, "%.80q is not a host: write web.example or web.example:8080", r.Host)
	case r.Path != "" && r.Path[0] != '/', strings.ContainsFunc(r.Path, other("#")):
		return admin.NewError(admin.ErrInvalid,
			"%.80q is not a path: write /orders; what is not ASCII, spaces and # are encoded, %%20", r.Path)
	}
	return nil
}

// explain asks what r means for a caller.
func (e Explainer) explain(c *push.Context, who explainedCaller, r admin.ExplainRequest) (admin.Explanation, error) {
	from := who.id
	call := authz.Request{From: from, Revoked: who.revoked, Port: uint32(r.Port), Method: cmp.Or(r.Method, "GET"),
		Path: cmp.Or(r.Path, "/"), Host: r.Host}
	request := r.Method != "" || r.Path != "" || r.Host != ""
	p, ok := e.proxy(r.To)
	node := p.Node
	var found []authz.Explained
	if !ok {
		if found = authz.Explain(c, gen.AuthorizationFilters, call, r.To); len(found) == 0 {
			node, ok = e.nodeNamed(c, r.To)
		}
	}
	if ok {
		call.TCP = !request
		return explanation(from, r, []authz.Explained{{
			Target: authz.Target{Namespace: node.Namespace, Workload: node.ID, Port: call.Port,
				MutualTLS: node.Identity},
			Decision: authz.Judge(c.Scope(c.Classify(node)), gen.AuthorizationFilters, call), Request: call,
		}}), nil
	}
	if len(found) == 0 {
		return admin.Explanation{}, unknownTarget(c, r)
	}
	if !request {
		return explanation(from, r, found), nil
	}
	return ofRequests(from, r, found)
}

// ofRequests explains a request: ports that speak no HTTP have no part in it. Errors:
// admin.ErrInvalid when no port does.
func ofRequests(from spiffe.ID, r admin.ExplainRequest, found []authz.Explained) (admin.Explanation, error) {
	var asked []authz.Explained
	var left []string
	for _, f := range found {
		if f.Request.TCP {
			left = append(left, place(f))
		} else {
			asked = append(asked, f)
		}
	}
	if len(asked) == 0 {
		return admin.Explanation{}, admin.NewError(admin.ErrInvalid,
			"%s speaks no HTTP: ask without a method, a path and a host, for a connection; if it does, "+
				"declare the protocol of the port, such as name: http-web", strings.Join(left, ", "))
	}
	out := explanation(from, r, asked)
	if len(left) > 0 {
		out.Notes = append(out.Notes, "ports that speak no HTTP take no requests and are left out: "+strings.Join(left,
			", "))
	}
	return out, nil
}

// unknownTarget returns why a target is unknown.
func unknownTarget(c *push.Context, r admin.ExplainRequest) error {
	if ports := authz.Ports(c, r.To); len(ports) > 0 {
		to := r.To
		if r.Port != 0 {
			to += " with port " + strconv.Itoa(r.Port)
		}
		return admin.NewError(admin.ErrNotFound, "%s has no such port: there are %s", to,
			strings.Join(ports, ", "))
	}
	return admin.NewError(admin.ErrNotFound, "%q is unknown: write the host of a service (web.example:80), "+
		"a workload (shop/web), its address, or the ID of a proxy", r.To)
}

// explanation puts what is said of several workloads and ports into one answer: where they differ,
// each is told of.
func explanation(from spiffe.ID, r admin.ExplainRequest, found []authz.Explained) admin.Explanation {
	out := admin.Explanation{From: cmp.Or(from.String(), "anonymous"), To: r.To, Request: requestText(from, r, found),
		Steps: []admin.ExplainStep{}}
	for _, f := range found {
		note := f.Name() + " is not known to take mutual TLS: callers reach it without an identity, unless a DestinationRule says otherwise"
		if from != (spiffe.ID{}) && !f.MutualTLS && !slices.Contains(out.Notes, note) {
			out.Notes = append(out.Notes, note)
		}
		compared := fmt.Sprintf("proxies compare the path %s as %s", f.Request.Path, f.Path)
		if !f.Request.TCP && f.Path != "" && f.Path != f.Request.Path && !slices.Contains(out.Notes, compared) {
			out.Notes = append(out.Notes, compared)
		}
	}
	parts := partsOf(found)
	out.Verdict, out.Reason = parts[0].Verdict, parts[0].Reason
	if len(parts) == 1 {
		out.Steps = parts[0].Steps
		return out
	}
	out.Parts = parts
	for _, p := range parts[1:] {
		if p.Verdict != out.Verdict {
			out.Verdict = string(authz.Depends)
		}
		if p.Reason != parts[0].Reason {
			out.Reason = "it is not the same at all of its workloads and ports"
		}
	}
	return out
}

// partsOf puts those together of which the same is said.
func partsOf(found []authz.Explained) []admin.ExplainPart {
	var out []admin.ExplainPart
	for _, f := range found {
		p := admin.ExplainPart{At: []string{place(f)}, Call: callText(f.Request), Verdict: string(f.Verdict),
			Reason: f.Reason, Steps: []admin.ExplainStep{}}
		for _, s := range f.Steps {
			p.Steps = append(p.Steps, explainStep(s))
		}
		same := slices.IndexFunc(out, func(o admin.ExplainPart) bool {
			return o.Call == p.Call && o.Verdict == p.Verdict && o.Reason == p.Reason && slices.Equal(o.Steps, p.Steps)
		})
		if same < 0 {
			out = append(out, p)
		} else {
			out[same].At = append(out[same].At, p.At...)
		}
	}
	return out
}

// place is a workload and its port.
func place(f authz.Explained) string {
	if f.Port == 0 {
		return f.Name()
	}
	return f.Name() + ":" + strconv.FormatUint(uint64(f.Port), 10)
}

func explainStep(s authz.Step) admin.ExplainStep {
	out := admin.ExplainStep{Policy: s.Policy.Key.String(), Action: s.Action, Matched: s.Rule >= 0 && !s.Unsure,
		Depends: s.Unsure, Rule: s.Rule, Decides: s.Decides, Why: s.Why}
	if s.DryRun {
		out.Action += " (dry run)"
	}
	if o := s.Policy.Origin; o.File != "" {
		out.Origin = o.File + ":" + strconv.Itoa(o.Line)
	}
	return out
}

// requestText describes what was judged: "GET /x to shop/web, workload port 8080, from shop/api
// (spiffe://…)".
func requestText(from spiffe.ID, r admin.ExplainRequest, found []authz.Explained) string {
	var calls, hosts, ports []string
	for _, f := range found {
		calls = append(calls, callText(f.Request))
		if f.Request.Host != "" && !f.Request.TCP {
			hosts = append(hosts, f.Request.Host)
		}
		if f.Port != 0 {
			ports = append(ports, strconv.FormatUint(uint64(f.Port), 10))
		}
	}
	list := func(before string, all []string) string {
		slices.Sort(all)
		if all = slices.Compact(all); len(all) == 0 {
			return ""
		}
		return before + strings.Join(all, " or ")
	}
	caller := fmt.Sprintf("%s (no identity: plaintext)", r.From)
	if from != (spiffe.ID{}) {
		caller = fmt.Sprintf("%s (%s)", r.From, from)
	}
	return list("", calls) + " to " + r.To + list(", workload port ", ports) + list(", host ", hosts) + ", from " + caller
}

// callText describes a request without its place: "GET /items", or "a connection".
func callText(r authz.Request) string {
	if r.TCP {
		return "a connection"
	}
	return r.Method + " " + r.Path
}
