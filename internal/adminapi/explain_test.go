package adminapi

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/ashore-mesh/ashore/ca"
	"github.com/ashore-mesh/ashore/config"
	"github.com/ashore-mesh/ashore/internal/admin"
	"github.com/ashore-mesh/ashore/internal/intern"
	"github.com/ashore-mesh/ashore/internal/spiffe"
	"github.com/ashore-mesh/ashore/push"
	"github.com/ashore-mesh/ashore/registry"
	"github.com/ashore-mesh/ashore/xds"
	"github.com/ashore-mesh/ashore/xds/authz"
)

const explainConfig = `
apiVersion: security.istio.io/v1
kind: AuthorizationPolicy
metadata: {name: deny, namespace: shop}
spec: {action: DENY, selector: {matchLabels: {app: web}}, rules: [{from: [{source: {namespaces: [bad]}}]}]}
`

// What policies say reaches operators with the policy that decides; who or what nobody knows is
// said so.
func TestExplainer(t *testing.T) {
	t.Parallel()
	b := newBackend(t, explainConfig)
	web := push.Node{ID: "web-1.shop", Namespace: "shop",
		Labels: new(intern.Lists[push.Label]).Of([]push.Label{{Key: "app", Value: "web"}}), Identity: true}
	e := &API{Published: b.Published, Connected: func() []xds.ProxyStatus {
		return []xds.ProxyStatus{
			{ID: "sidecar~10.0.0.1~web-1.shop~x", Node: web},
		}
	}}
	for _, tc := range []struct {
		name, from, to, verdict, reason string
		steps                           int
		is                              error
	}{
		{"denied", "bad/a", "web-1.shop", "denied", "rule 0 of AuthorizationPolicy shop/deny denies it", 1, nil},
		{"by the node ID", "bad/a", "sidecar~10.0.0.1~web-1.shop~x", "denied", "shop/deny", 1, nil},
		{"allowed", "shop/a", "web-1.shop", "allowed", "no policy denies it", 1, nil},
		{"no caller", "web", "web-1.shop", "", "write shop/web", 0, admin.ErrInvalid},
		{"no target", "shop/a", "shop/nobody", "", "web.example:80", 0, admin.ErrNotFound},
	} {
		got, err := e.Explain(t.Context(), admin.ExplainRequest{From: tc.from, To: tc.to})
		switch {
		case tc.is != nil:
			if !errors.Is(err, tc.is) || !strings.Contains(err.Error(), tc.reason) {
				t.Errorf("%s: error %v, want %v with %q", tc.name, err, tc.is, tc.reason)
			}
		case err != nil || got.Verdict != tc.verdict || !strings.Contains(got.Parts[0].Reason, tc.reason) ||
			len(got.Parts[0].Steps) != tc.steps:
			t.Errorf("%s: got %+v, %v", tc.name, got, err)
		}
	}
	got, err := e.Explain(t.Context(), admin.ExplainRequest{From: "bad/a", To: "web-1.shop"})
	if err != nil {
		t.Fatal(err)
	}
	if step := got.Parts[0].Steps[0]; !step.Decides || !step.Matched || step.Origin != "a.yaml:2" || len(got.Notes) != 0 {
		t.Errorf("the step is %+v, notes %v", step, got.Notes)
	}
	if _, err := (&API{Published: publish(nil)}).Explain(t.Context(),
		admin.ExplainRequest{}); !errors.Is(err, admin.ErrConflict) {
		t.Errorf("without configuration: %v", err)
	}
}

// Where the workloads of a service differ, each is told of on its own, and those that are alike
// together.
func TestExplanationOfSeveral(t *testing.T) {
	t.Parallel()
	one := authz.Explained{
		Target:  authz.Target{Namespace: "shop", Workload: "a", Port: 80, MutualTLS: true},
		Request: authz.Request{Method: "GET", Path: "/"}, Decision: authz.Decision{Verdict: authz.Allowed, Reason: "x"},
	}
	two := one
	two.Workload, two.MutualTLS, two.Verdict, two.Reason = "b", false, authz.Denied, "y"
	id := spiffe.ID{TrustDomain: "td", Namespace: "a", ServiceAccount: "b"}
	got := explanation(id, []authz.Explained{one, two, one})
	want := []admin.ExplainPart{
		{At: []string{"shop/a:80", "shop/a:80"}, Call: "GET /", Verdict: "allowed", Reason: "x", Steps: []admin.ExplainStep{}},
		{At: []string{"shop/b:80"}, Call: "GET /", Verdict: "denied", Reason: "y", Steps: []admin.ExplainStep{}},
	}
	if diff := cmp.Diff(want, got.Parts); got.Verdict != "depends" || len(got.Notes) != 1 || diff != "" {
		t.Errorf("got %+v %s", got, diff)
	}
	if got := explanation(spiffe.ID{}, []authz.Explained{one, one}); got.Verdict != "allowed" ||
		got.From != "anonymous" || got.Notes != nil || len(got.Parts) != 1 {
		t.Errorf("of two that are alike: %+v", got)
	}
}

// twoPorts is a service whose workload takes HTTP at 8080 and connections at 7080, and lets
// shop/web ask for /items, under more policies.
func twoPorts(t *testing.T, more ...string) *API {
	t.Helper()
	const policy = `
apiVersion: security.istio.io/v1
kind: AuthorizationPolicy
metadata: {name: readers, namespace: shop}
spec: {rules: [{from: [{source: {serviceAccounts: [shop/web]}}], to: [{operation: {methods: [GET], paths: [/items]}}]}]}
`
	in := push.Inputs{Mesh: &push.Mesh{Config: config.DefaultMesh(), Domain: "cluster.local"}}
	for _, o := range config.Parse("a.yaml", []byte(strings.Join(append(more, policy), "---\n"))).Objects {
		in.Objects = in.Objects.With(o.Key, o)
	}
	http, raw := registry.Port{Number: 80, Name: "http", Protocol: registry.HTTP,
		TargetPort: 8080}, registry.Port{Number: 70, Name: "tcp", Protocol: registry.TCP, TargetPort: 7080}
	for host, ports := range map[string][]registry.Port{"api.example": {http, raw},
		"db.example": {{Number: 70, Name: "tcp", Protocol: registry.TCP, TargetPort: 7081}}} {
		key := registry.Key{Host: host, Namespace: "shop"}
		in.Services = in.Services.With(key, &registry.Service{Key: key, Ports: ports})
		in.Endpoints = in.Endpoints.With(key, &registry.EndpointList{Items: []registry.Endpoint{
			{Address: "10.0.0.1", Namespace: "shop", Workload: host[:len(host)-len(".example")], ServiceAccount: "api", TLSMode: "istio"},
		}})
	}
	c := push.Build(nil, in)
	return &API{Published: publish(c), Connected: func() []xds.ProxyStatus { return nil }}
}

// A request is judged at ports that speak HTTP alone; without one, each port is told of on its own.
func TestExplainPorts(t *testing.T) {
	t.Parallel()
	e := twoPorts(t)
	ask := func(from, to string, port int, method, path string) (admin.Explanation, error) {
		return e.Explain(t.Context(), admin.ExplainRequest{From: from, To: to, Port: port, Method: method, Path: path})
	}
	got, err := ask("shop/batch", "api.example", 0, "GET", "/items")
	if err != nil || got.Verdict != "denied" || len(got.Parts) != 1 || len(got.Parts[0].Steps) != 1 ||
		got.Parts[0].Steps[0].Why != "the caller's identity does not match" || len(got.Notes) != 0 {
		t.Errorf("a request of somebody else: %+v, %v", got, err)
	}
	if got, err := ask("shop/web", "shop/api", 0, "GET", "/items"); err == nil && got.Verdict != "allowed" ||
		err != nil {
		t.Errorf("a request that is allowed: %+v, %v", got, err)
	}
	got, err = ask("shop/batch", "api.example", 0, "", "")
	if err != nil || got.Verdict != "denied" || len(got.Parts) != 2 || got.Parts[0].Call != "a connection" ||
		got.Parts[0].At[0] != "shop/api:7080" ||
		got.Parts[1].Call != "GET api.example/" || got.Parts[1].Steps[0].Why != "the caller's identity does not match" {
		t.Errorf("nothing certain: %+v, %v", got, err)
	}
	if got, err = ask("shop/web", "api.example:8080", 0, "GET", "/items"); err != nil || got.Verdict != "allowed" {
		t.Errorf("at the workload's port: %+v, %v", got, err)
	}
	for _, tc := range []struct {
		to           string
		port         int
		method, path string
		is           error
		want         string
	}{
		{"db.example", 0, "GET", "", admin.ErrNotFound, "nothing is known of \"db.example\" with that port and protocol"},
		{"api.example:99", 0, "", "", admin.ErrNotFound, "nothing is known of"},
		{"api.example", 99, "", "", admin.ErrNotFound, "nothing is known of"},
		{"", 0, "", "", admin.ErrNotFound, "nothing is known of"},
	} {
		if _, err := ask("shop/web", tc.to, tc.port, tc.method, tc.path); !errors.Is(err, tc.is) ||
			!strings.Contains(err.Error(), tc.want) {
			t.Errorf("%+v: got %v", tc, err)
		}
	}
}

// Policies of a subset are those at its endpoints.
func TestExplainAddresses(t *testing.T) {
	t.Parallel()
	a := twoPorts(t)
	in := a.Published().Inputs()
	key := registry.Key{Host: "api.example", Namespace: "shop"}
	in.Endpoints = in.Endpoints.With(key, &registry.EndpointList{Items: []registry.Endpoint{
		{Address: "10.0.0.1", Namespace: "shop", Workload: "api-1", Labels: map[string]string{"version": "v1"}},
		{Address: "10.0.0.2", Namespace: "shop", Workload: "api-2", Labels: map[string]string{"version": "v2"}},
	}})
	deny := config.Parse("p.yaml", []byte(strings.Replace(explainConfig, "app: web", "version: v1", 1))).Objects[0]
	in.Objects = push.Objects{}.With(deny.Key, deny)
	a.Published = publish(push.Build(nil, in))
	for want, addresses := range map[string][]string{
		"denied": {"10.0.0.1:8080"}, "allowed": {"10.0.0.2:8080"}, "depends": nil} {
		got, err := a.Explain(t.Context(), admin.ExplainRequest{From: "bad/a", To: "api.example:80", Method: "GET",
			Addresses: addresses})
		if err != nil || got.Verdict != want {
			t.Errorf("%v: got %+v, %v, want %s", addresses, got, err, want)
		}
	}
}

// Policies about hosts are asked for the host that the request names, or else for that of the
// service.
func TestExplainHost(t *testing.T) {
	t.Parallel()
	const policy = `
apiVersion: security.istio.io/v1
kind: AuthorizationPolicy
metadata: {name: admin, namespace: shop}
spec: {action: DENY, rules: [{to: [{operation: {hosts: [admin.example]}}]}]}
`
	e := twoPorts(t, policy)
	for _, tc := range []struct{ name, to, host, verdict string }{
		{"the service's own", "api.example", "", "allowed"},
		{"another one", "api.example", "admin.example", "denied"},
		{"with a port", "api.example:80", "admin.example:8080", "denied"},
		{"in capitals", "shop/api", "ADMIN.example", "denied"},
		{"one that no policy is about", "shop/api", "web.example", "allowed"},
	} {
		got, err := e.Explain(t.Context(), admin.ExplainRequest{From: "shop/web", To: tc.to, Path: "/items",
			Host: tc.host})
		if err != nil || got.Verdict != tc.verdict {
			t.Errorf("%s: got %+v, %v, want %s", tc.name, got, err, tc.verdict)
		}
	}
	if got, err := e.Explain(t.Context(), admin.ExplainRequest{From: "shop/web", To: "api.example",
		Host: "admin.example"}); err != nil || len(got.Parts) != 1 {
		t.Errorf("a host alone is not a request: %+v, %v", got, err)
	}
}

// A proxy is asked for the host that the request names; without one nobody can tell.
func TestExplainHostOfProxy(t *testing.T) {
	t.Parallel()
	b := newBackend(t, strings.Replace(explainConfig, "from: [{source: {namespaces: [bad]}}]",
		"to: [{operation: {hosts: [admin.example]}}]", 1))
	web := push.Node{ID: "web-1.shop", Namespace: "shop",
		Labels: new(intern.Lists[push.Label]).Of([]push.Label{{Key: "app", Value: "web"}}), Identity: true}
	e := &API{Published: b.Published, Connected: func() []xds.ProxyStatus {
		return []xds.ProxyStatus{{ID: "web-1.shop",
			Node: web}}
	}}
	for host, want := range map[string]string{"admin.example": "denied", "web.example": "allowed", "": "depends"} {
		got, err := e.Explain(t.Context(), admin.ExplainRequest{From: "shop/a", To: "web-1.shop", Method: "GET",
			Host: host})
		if err != nil || got.Verdict != want {
			t.Errorf("host %q: got %+v, %v, want %s", host, got, err, want)
		}
	}
}

// Who is revoked is told so, also when it is cut off, and when it is not all of an identity.
func TestExplainRevoked(t *testing.T) {
	t.Parallel()
	e := twoPorts(t)
	workload := func(name, account string, revoked bool, leaves ...admin.Leaf) ca.Workload {
		return ca.Workload{Name: name, Identity: "spiffe://cluster.local/ns/shop/sa/" + account, Revoked: revoked,
			Leaves: leaves}
	}
	e.Workloads = func(context.Context) ([]ca.Workload, error) {
		return []ca.Workload{
			workload("shop/one", "alone", true), workload("shop/w-1", "web", false, admin.Leaf{Serial: "01"},
				admin.Leaf{Serial: "02"}), workload("shop/w-2", "web", true), workload("shop/w.3", "web", true, admin.Leaf{Serial: "03"}),
			workload("shop/old-1", "old", true), workload("shop/old-2", "old", true),
		}, errors.New("workload shop/bad: damaged")
	}
	const damaged = "some workloads or revocations are not known: workload shop/bad: damaged"
	for _, tc := range []struct{ from, verdict, reason, note string }{
		{"shop/alone", "denied", "every workload with this identity (shop/one) is revoked", ""},
		{"shop/web", "allowed", "allows it", "some workloads with this identity are revoked, and refused: shop/w-2, shop/w.3"},
		{"shop/old", "denied", "every workload with this identity (shop/old-1, shop/old-2) is revoked", ""},
		{"shop/none", "denied", "none of them matches", `no workload that has joined has the identity spiffe://cluster.local/ns/shop/sa/none: "ashorectl workload list" shows who has which`},
		{"spiffe://other.domain/ns/shop/sa/web", "denied", "certificates of the trust domain other.domain are refused in the handshake: the mesh takes those of cluster.local", "no workload that has joined"},
	} {
		got, err := e.Explain(t.Context(), admin.ExplainRequest{From: tc.from, To: "api.example:80", Path: "/items"})
		if err != nil || got.Verdict != tc.verdict || !strings.Contains(got.Parts[0].Reason, tc.reason) ||
			!strings.Contains(strings.Join(got.Notes, "\n"), tc.note) || !slices.Contains(got.Notes, damaged) ||
			tc.note == "" && len(got.Notes) != 1 {
			t.Errorf("%s: got %+v, %v", tc.from, got, err)
		}
	}
}

// A path is rewritten as proxies do, or else unknown; what no proxy takes is refused.
func TestExplainPath(t *testing.T) {
	t.Parallel()
	e := twoPorts(t)
	call := admin.ExplainRequest{From: "shop/web", To: "api.example:80", Path: "/items?q"}
	got, err := e.Explain(t.Context(), call)
	if err != nil || got.Verdict != "allowed" || got.Parts[0].Call != "GET api.example/items?q" {
		t.Errorf("got %+v, %v", got, err)
	}
	for _, call.Path = range []string{"/%69tems", "/x/../items"} {
		if got, err = e.Explain(t.Context(), call); err != nil || got.Verdict != "allowed" {
			t.Errorf("got %+v, %v", got, err)
		}
	}
	for _, call.Path = range []string{"/%20items", "/x//../items"} {
		if got, err = e.Explain(t.Context(), call); err != nil || got.Verdict != "depends" ||
			!strings.HasSuffix(got.Parts[0].Reason, "proxies may rewrite the path: write it as they do") {
			t.Errorf("got %+v, %v", got, err)
		}
	}
	call.Path = "items"
	if _, err := e.Explain(t.Context(), call); !errors.Is(err, admin.ErrInvalid) {
		t.Errorf("a path without /: %v", err)
	}
}
