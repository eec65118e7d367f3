package adminapi

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/ashore-mesh/ashore/ca"
	"github.com/ashore-mesh/ashore/internal/admin"
	"github.com/ashore-mesh/ashore/internal/spiffe"
	"github.com/ashore-mesh/ashore/push"
	"github.com/ashore-mesh/ashore/xds"
	"github.com/ashore-mesh/ashore/xds/authz"
	"github.com/ashore-mesh/ashore/xds/gen/access"
)

// Explainer implements admin.Explainer. The fields are set before use. Safe for concurrent use.
type Explainer struct {
	Published *Published
	// Proxies returns the connected proxies.
	Proxies func() []xds.ProxyStatus
	// Workloads returns the workloads that joined, with revoked ones. Nil: there is no certificate
	// authority.
	Workloads func(context.Context) ([]ca.Workload, error)
}

var _ admin.Explainer = Explainer{}

// Explain looks at what is in use now. Errors: admin.ErrInvalid for a caller that nobody can be, a
// method that there is not, what is no host, or a request to what takes connections alone;
// admin.ErrNotFound for a target that nobody knows, admin.ErrConflict before there is any
// configuration.
func (e Explainer) Explain(ctx context.Context, r admin.ExplainRequest) (admin.Explanation, error) {
	c := e.Published.Context()
	if c == nil {
		return admin.Explanation{}, admin.NewError(admin.ErrConflict, "there is no configuration yet")
	}
	who, err := e.caller(ctx, c, r.From)
	if err != nil {
		return admin.Explanation{}, err
	}
	if err := checkMethod(r.Method); err != nil {
		return admin.Explanation{}, err
	}
	if err := cmp.Or(checkHost(r.Host), checkPath(r.Path)); err != nil {
		return admin.Explanation{}, err
	}
	out, err := e.explain(c, who, r)
	out.Notes = append(out.Notes, who.notes...)
	return out, err
}

// explain asks what r means for a caller.
func (e Explainer) explain(c *push.Context, who explainedCaller, r admin.ExplainRequest) (admin.Explanation, error) {
	from := who.id
	call := authz.Request{From: from, Revoked: who.revoked, Port: uint32(r.Port), Method: cmp.Or(r.Method, "GET"),
		Path: cmp.Or(r.Path, "/"), Host: r.Host}
	request := r.Method != "" || r.Path != "" || r.Host != ""
	if p, ok := e.proxy(r.To); ok {
		call.TCP = !request
		return explanation(from, r.To, []authz.Explained{{
			Target:   authz.Target{Namespace: p.Namespace, Workload: p.ID, Port: call.Port, MutualTLS: p.Identity},
			Decision: authz.Judge(c.Scope(c.Classify(p)), access.Filters, call), Request: call,
		}}), nil
	}
	found := authz.Explain(c, access.Filters, call, r.To)
	if len(found) == 0 {
		return admin.Explanation{}, unknownTarget(c, r)
	}
	if !request {
		return explanation(from, r.To, found), nil
	}
	return ofRequests(from, r.To, found)
}

// ofRequests explains a request: ports that speak no HTTP have no part in it. Errors:
// admin.ErrInvalid when no port does.
func ofRequests(from spiffe.ID, to string, found []authz.Explained) (admin.Explanation, error) {
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
		return admin.Explanation{}, admin.NewError(admin.ErrInvalid, fmt.Sprintf(
			"%s speaks no HTTP: ask without a method, a path and a host, for a connection; if it does, declare the protocol of the port, such as name: http-web",
			strings.Join(left, ", ")))
	}
	out := explanation(from, to, asked)
	if len(left) > 0 {
		out.Notes = append(out.Notes, "ports that speak no HTTP take no requests and are left out: "+strings.Join(left,
			", "))
	}
	return out, nil
}

// checkMethod refuses what no request has as its method, and one of HTTP's in another case:
// policies tell them apart by case. Errors: admin.ErrInvalid.
func checkMethod(method string) error {
	upper := strings.ToUpper(method)
	known := []string{
		http.MethodGet, http.MethodHead, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete,
		http.MethodConnect, http.MethodOptions, http.MethodTrace,
	}
	switch {
	case method != "" && strings.ContainsFunc(method, func(c rune) bool {
		return (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') && (c < '0' || c > '9') &&
			!strings.ContainsRune("!#$%&'*+-.^_`|~", c)
	}):
		return admin.NewError(admin.ErrInvalid, fmt.Sprintf("%.40q is not a method of HTTP: write GET, POST or another",
			method))
	case method != upper && slices.Contains(known, upper):
		return admin.NewError(admin.ErrInvalid,
			fmt.Sprintf("the method %q is not %s: policies tell them apart by case; write %s", method, upper, upper))
	}
	return nil
}

// checkHost refuses what no request has as its host, such as a URL. Errors: admin.ErrInvalid.
func checkHost(host string) error {
	if strings.ContainsFunc(host, func(c rune) bool {
		return c <= ' ' || c > '~' ||
			strings.ContainsRune("/?#@\\", c)
	}) {
		return admin.NewError(admin.ErrInvalid,
			fmt.Sprintf("%.80q is not a host: write web.example or web.example:8080", host))
	}
	return nil
}

// checkPath refuses what proxies take as the path of no request. Errors: admin.ErrInvalid.
func checkPath(path string) error {
	if path != "" && path[0] != '/' || strings.ContainsFunc(path,
		func(c rune) bool { return c <= ' ' || c > '~' || c == '#' }) {
		return admin.NewError(admin.ErrInvalid,
			fmt.Sprintf("%.80q is not a path: write /orders; what is not ASCII, spaces and # are encoded, %%20", path))
	}
	return nil
}

// unknownTarget says why nobody is what was asked about.
func unknownTarget(c *push.Context, r admin.ExplainRequest) error {
	if ports := authz.Ports(c, r.To); len(ports) > 0 {
		to := r.To
		if r.Port != 0 {
			to += " with port " + strconv.Itoa(r.Port)
		}
		return admin.NewError(admin.ErrNotFound, fmt.Sprintf("%s has no such port: there are %s", to,
			strings.Join(ports, ", ")))
	}
	return admin.NewError(admin.ErrNotFound,
		fmt.Sprintf("nobody is %q: write the host of a service, web.example:80, a workload, shop/web, its address, or the ID of a proxy", r.To))
}

// proxy is the connected one of an ID.
func (e Explainer) proxy(id string) (push.Node, bool) {
	for _, p := range e.Proxies() {
		if p.ID == id || p.Node.ID == id {
			return p.Node, true
		}
	}
	return push.Node{}, false
}

// explanation puts what is said of several workloads and ports into one answer: where they differ,
// each is told of.
func explanation(from spiffe.ID, to string, found []authz.Explained) admin.Explanation {
	out := admin.Explanation{From: cmp.Or(from.String(), "anonymous"), To: to, Steps: []admin.ExplainStep{}}
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
		p := admin.ExplainPart{At: []string{place(f)}, Call: f.Request.Method + " " + f.Request.Path,
			Verdict: string(f.Verdict), Reason: f.Reason, Steps: []admin.ExplainStep{}}
		if f.Request.TCP {
			p.Call = "a connection"
		}
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
		Rule: s.Rule, Decides: s.Decides, Why: s.Why}
	if s.DryRun {
		out.Action += " (dry run)"
	}
	if o := s.Policy.Origin; o.File != "" {
		out.Origin = o.File + ":" + strconv.Itoa(o.Line)
	}
	return out
}
