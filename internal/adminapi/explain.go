package adminapi

import (
	"cmp"
	"context"
	"fmt"
	"net/url"
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

// Explainer explains what policies decide about a request. The fields are set before use. Safe for
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
	from, err := authz.Caller(c, r.From)
	if err != nil {
		return admin.Explanation{}, admin.NewError(admin.ErrInvalid, "%v", err)
	}
	revoked, notes := e.revoked(ctx, from)
	http := r.Method != "" || r.Path != "" || r.Host != ""
	found := e.judge(c, r.To, !http, authz.Request{From: from, Revoked: revoked, Port: uint32(r.Port),
		Method: cmp.Or(r.Method, "GET"), Path: cmp.Or(r.Path, "/"), Host: r.Host})
	if len(found) == 0 {
		return admin.Explanation{}, admin.NewError(admin.ErrNotFound, "nothing is known of %q with that port: write the "+
			"host of a service (web.example:80), a workload (shop/web), its address, or the ID of a proxy; "+
			"\"ashorectl get endpoints\" lists them", r.To)
	}
	if http {
		var left []string
		if found, left = ofHTTP(found); len(found) == 0 {
			return admin.Explanation{}, admin.NewError(admin.ErrInvalid,
				"%s speaks no HTTP: ask without a method, a path and a host, for a connection; if it does, "+
					"declare the protocol of the port, such as name: http-web", strings.Join(left, ", "))
		}
		if len(left) > 0 {
			notes = append(notes, "ports that speak no HTTP take no requests and are left out: "+strings.Join(left, ", "))
		}
	}
	out := explanation(from, found)
	out.Notes = append(out.Notes, notes...)
	return out, nil
}

// checkRequest refuses what no client can send. Errors: admin.ErrInvalid.
func checkRequest(r admin.ExplainRequest) error {
	host, path := cmp.Or(r.Host, "any"), cmp.Or(r.Path, "/")
	u, err := url.Parse("http://" + host + path)
	switch {
	case r.From == "" || r.To == "":
		return admin.NewError(admin.ErrInvalid, "both from and to are needed")
	case r.Port < 0 || r.Port > 65535:
		return admin.NewError(admin.ErrInvalid, "%d is not a port: want 1 to 65535", r.Port)
	case r.Method != strings.ToUpper(r.Method):
		return admin.NewError(admin.ErrInvalid, "the method %.40q is not in upper case: write GET, POST or another", r.Method)
	case err != nil || u.Host != host || u.RequestURI() != path:
		return admin.NewError(admin.ErrInvalid, "no client can send the host %.80q with the path %.80q: write web.example "+
			"or web.example:8080, and /orders; what is not ASCII, spaces and # are encoded, %%20", r.Host, r.Path)
	}
	return nil
}

// revoked names what of a caller is revoked beside its identity; empty: nothing.
func (e Explainer) revoked(ctx context.Context, from spiffe.ID) (revoked string, notes []string) {
	if e.Workloads == nil || from == (spiffe.ID{}) {
		return "", nil
	}
	joined, err := e.Workloads(ctx)
	if err != nil {
		notes = append(notes, "some workloads or revocations are not known: "+err.Error())
	}
	var names []string
	all := 0
	for _, w := range joined {
		if w.Identity != from.String() {
			continue
		}
		all++
		if n := len(w.Leaves); w.Revoked || n > 0 && w.Leaves[n-1].Revoked {
			names = append(names, w.Name)
		}
	}
	list := strings.Join(names, ", ")
	switch {
	case all == 0:
		notes = append(notes, fmt.Sprintf(
			"no workload that has joined has the identity %s: \"ashorectl workload list\" shows who has which", from))
	case len(names) == all:
		revoked = "every workload with this identity (" + list + ")"
	case len(names) > 0:
		notes = append(notes, "some workloads with this identity are revoked, and refused: "+list)
	}
	return revoked, notes
}

// judge returns what the workloads and ports of to decide. Of a proxy tcp says whether it is asked
// about a connection.
func (e Explainer) judge(c *push.Context, to string, tcp bool, r authz.Request) []authz.Explained {
	for _, p := range e.Proxies() {
		if p.ID == to || p.Node.ID == to {
			r.TCP = tcp
			return []authz.Explained{{Target: authz.Target{Namespace: p.Node.Namespace, Workload: p.Node.ID, Port: r.Port,
				MutualTLS: p.Node.Identity}, Decision: authz.Judge(c.Scope(c.Classify(p.Node)), access.Filters, r), Request: r}}
		}
	}
	return authz.Explain(c, access.Filters, r, to)
}

// ofHTTP returns the results for ports that speak HTTP, and the names of the others.
func ofHTTP(found []authz.Explained) (asked []authz.Explained, left []string) {
	for _, f := range found {
		if f.Request.TCP {
			left = append(left, place(f))
		} else {
			asked = append(asked, f)
		}
	}
	return asked, left
}

// explanation groups workloads and ports with equal results.
func explanation(from spiffe.ID, found []authz.Explained) admin.Explanation {
	out := admin.Explanation{From: cmp.Or(from.String(), "anonymous")}
	for _, f := range found {
		note := f.Name() + " is not known to take mutual TLS: callers reach it without an identity, " +
			"unless a DestinationRule says otherwise"
		if from != (spiffe.ID{}) && !f.MutualTLS && !slices.Contains(out.Notes, note) {
			out.Notes = append(out.Notes, note)
		}
		part := explainPart(f)
		out.Verdict = cmp.Or(out.Verdict, part.Verdict)
		if part.Verdict != out.Verdict {
			out.Verdict = string(authz.Depends)
		}
		same := slices.IndexFunc(out.Parts, func(o admin.ExplainPart) bool {
			return o.Call == part.Call && o.Verdict == part.Verdict && o.Reason == part.Reason &&
				slices.Equal(o.Steps, part.Steps)
		})
		if same < 0 {
			out.Parts = append(out.Parts, part)
		} else {
			out.Parts[same].At = append(out.Parts[same].At, part.At...)
		}
	}
	return out
}

// explainPart is the result at one port of a workload.
func explainPart(f authz.Explained) admin.ExplainPart {
	out := admin.ExplainPart{At: []string{place(f)}, Call: "a connection", Verdict: string(f.Verdict), Reason: f.Reason,
		Steps: []admin.ExplainStep{}}
	if !f.Request.TCP {
		out.Call = f.Request.Method + " " + f.Request.Host + cmp.Or(f.Path, f.Request.Path)
	}
	for _, s := range f.Steps {
		step := admin.ExplainStep{Policy: s.Policy.Key.String(), Action: s.Action, Matched: s.Rule >= 0 && !s.Unsure,
			Depends: s.Unsure, Rule: s.Rule, Decides: s.Decides, Why: s.Why}
		if s.DryRun {
			step.Action += " (dry run)"
		}
		if o := s.Policy.Origin; o.File != "" {
			step.Origin = o.File + ":" + strconv.Itoa(o.Line)
		}
		out.Steps = append(out.Steps, step)
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
