package authz

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	mesh "istio.io/api/mesh/v1alpha1"

	"github.com/ashore-mesh/ashore/config"
	"github.com/ashore-mesh/ashore/push"
	"github.com/ashore-mesh/ashore/xds/gen"
	"github.com/ashore-mesh/ashore/xds/resource"
)

const routes = `
apiVersion: networking.istio.io/v1
kind: VirtualService
metadata: {name: web, namespace: shop}
spec:
  hosts: [web.example]
  http:
  - name: canary
    match: [{headers: {x-canary: {exact: "true"}}, method: {exact: GET}}]
    route: [{destination: {host: web.example, subset: canary, port: {number: 80}}}]
  - name: old
    match: [{uri: {prefix: /old/}}]
    rewrite: {uri: /new/, authority: other.example}
    timeout: 2s
    fault: {abort: {httpStatus: 500, percentage: {value: 1}}, delay: {fixedDelay: 1s, percentage: {value: 0.5}}}
    route: [{destination: {host: web.example, port: {number: 80}}}]
  - name: moved
    match: [{uri: {exact: /moved}}]
    redirect: {uri: /there, redirectCode: 308}
  - name: user
    match: [{uri: {regex: "/user/[0-9]+"}}]
    rewrite: {uriRegexRewrite: {match: "^/user/([0-9]+)$", rewrite: "/u/\\1"}}
    route:
    - {destination: {host: web.example, port: {number: 80}}, weight: 75}
    - {destination: {host: web.example, subset: none, port: {number: 80}}, weight: 25}
  - name: query
    match: [{queryParams: {debug: {exact: "1"}}}]
    directResponse: {status: 418}
  - name: items
    match: [{uri: {prefix: /items}}]
    route: [{destination: {host: web.example, port: {number: 80}}}]
---
apiVersion: networking.istio.io/v1
kind: DestinationRule
metadata: {name: web, namespace: shop}
spec:
  host: web.example
  subsets: [{name: canary, labels: {version: canary}}]
`

// sent is what a proxy of namespace shop is sent under objects in YAML.
func sent(t *testing.T, typ push.NodeType, objects string) Resources {
	t.Helper()
	return sentIn(t, config.DefaultMesh(), typ, objects)
}

// sentIn is sent with the mesh's settings.
func sentIn(t *testing.T, m *mesh.MeshConfig, typ push.NodeType, objects string) Resources {
	t.Helper()
	c := explainedIn(t, m, objects, nil)
	n := Target{Namespace: "shop", Address: "10.0.0.9", labels: map[string]string{"app": "gateway"}}.Node()
	n.Identity, n.Type = true, typ
	sc := c.Scope(c.Classify(n))
	g := gen.New()
	var out Resources
	for _, typ := range []string{resource.ClusterType, resource.EndpointType, resource.RouteType, resource.ListenerType} {
		for r := range g.Set(typ, sc).All() {
			out = append(out, r)
		}
	}
	return out
}

// A request takes the routes that the proxy's resources have for it, and its destinations say how it
// gets there, or why it does not.
func TestRoute(t *testing.T) {
	t.Parallel()
	const host = "80, virtual host web.example:80, route "
	web := Hop{Options: "retries: 2", Cluster: "outbound|80||web.example", Weight: 100, Endpoints: 2, TLS: "mutual TLS for 1 of 2", Host: "web.example"}
	named := func(h Hop, route, path string) Hop {
		h.Route, h.Path = host+route, path
		return h
	}
	noCluster := Hop{Options: "retries: 2", Code: 503, Flags: "NC", Cluster: "outbound|80|none|web.example", Weight: 25, Host: "web.example"}
	old := named(web, "old", "/new/a")
	old.Host, old.Options = "other.example", "timeout 2s, retries: 2, delay 1s in 0.5 % of requests (flag DI)"
	aborted := Hop{Route: host + "old", Options: old.Options, Code: 500, Flags: "FI"}
	user := named(web, "user", "/u/7")
	user.Weight = 75
	userQuery := user
	userQuery.Path = "/u/7?x=/user/8"
	shouted := named(web, "items", "/items")
	shouted.Host = "WEB.example."
	canary := Hop{Options: "retries: 2", Route: host + "canary", If: "the header x-canary", Cluster: "outbound|80|canary|web.example", Weight: 100,
		Code: 503, Flags: "UH", TLS: "mutual TLS", Host: "web.example"}
	canaryTo := func(path, condition string) Hop {
		h := canary
		h.Path, h.If = path, condition
		return h
	}
	for name, tc := range map[string]struct {
		r    Request
		want []Hop
	}{
		"an unknown header decides": {Request{Method: "GET", Path: "/items/1"},
			[]Hop{canaryTo("/items/1", "the header x-canary"), named(web, "items", "/items/1")}},
		"the header is known":            {Request{Method: "GET", Path: "/items/1", Headers: map[string]string{"x-canary": "true"}}, []Hop{canaryTo("/items/1", "")}},
		"the header has another value":   {Request{Method: "GET", Path: "/items", Headers: map[string]string{"x-canary": "no"}}, []Hop{named(web, "items", "/items")}},
		"another method":                 {Request{Method: "PUT", Path: "/items"}, []Hop{named(web, "items", "/items")}},
		"another form of the host":       {Request{Method: "PUT", Path: "/items", Host: "WEB.example."}, []Hop{shouted}},
		"prefix and authority rewritten": {Request{Method: "PUT", Path: "/old/a"}, []Hop{aborted, old}},
		"the query stays": {Request{Method: "PUT", Path: "/user/7?x=/user/8"},
			[]Hop{userQuery, named(noCluster, "user", "/u/7?x=/user/8")}},
		"redirection": {Request{Method: "PUT", Path: "/moved"}, []Hop{{Route: host + "moved", Code: 308}}},
		"regex, weights and no cluster": {Request{Method: "PUT", Path: "/user/7"},
			[]Hop{user, named(noCluster, "user", "/u/7")}},
		"a query":         {Request{Method: "PUT", Path: "/x?debug=1"}, []Hop{{Route: host + "query", Code: 418}}},
		"no route":        {Request{Method: "PUT", Path: "/x?debug=2"}, []Hop{{Route: "80, virtual host web.example:80", Code: 404, Flags: "NR"}}},
		"nobody declared": {Request{Method: "PUT", Path: "/", Host: "who.example"}, []Hop{{Route: "80, virtual host allow_any, route allow_any", Cluster: "PassthroughCluster", Weight: 100, Endpoints: 1, TLS: "plaintext", Host: "who.example", Path: "/"}}},
		"a connection": {Request{Port: 90}, []Hop{{Route: "none: the port carries connections", Connection: true, Endpoints: 2,
			Cluster: "outbound|90||web.example", Weight: 100, TLS: "mutual TLS for 1 of 2"}}},
		"another port": {Request{Port: 99, Path: "/"}, []Hop{{Route: "none: unknown host and port", Connection: true, Endpoints: 1,
			Cluster: "PassthroughCluster", Weight: 100, TLS: "plaintext"}}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := tc.r
			if r.Host == "" {
				r.Host = "web.example"
			}
			if r.Port == 0 {
				r.Port = 80
			}
			got := sent(t, push.Sidecar, routes).Route(r)
			if d := cmp.Diff(tc.want, got, cmpopts.IgnoreFields(Hop{}, "Reason", "Addresses")); d != "" {
				t.Errorf("(-want +got):\n%s", d)
			}
		})
	}
}

// An abort is the answer for its share of requests; with all, no destination gets one.
func TestRouteAbort(t *testing.T) {
	t.Parallel()
	for share, want := range map[string]struct {
		hops   int
		reason string
	}{"100": {1, "aborts every request"}, "2.5": {2, "in 2.5 % of requests"}} {
		rule := strings.Replace(routes, "percentage: {value: 1}", "percentage: {value: "+share+"}", 1)
		got := sent(t, push.Sidecar, rule).Route(Request{Method: "PUT", Host: "web.example", Port: 80, Path: "/old/a"})
		if len(got) != want.hops || got[0].Code != 500 || got[0].Flags != "FI" || !strings.Contains(got[0].Reason, want.reason) {
			t.Errorf("%s %%: got %+v", share, got)
		}
	}
}

// An unknown destination gets what outboundTrafficPolicy says; without interception there is no
// address to send a request to.
func TestRouteUnknown(t *testing.T) {
	t.Parallel()
	const only = `
apiVersion: networking.istio.io/v1
kind: Sidecar
metadata: {name: default, namespace: shop}
spec: {outboundTrafficPolicy: {mode: REGISTRY_ONLY}, egress: [{hosts: ["*/*"]}]}
`
	unknown := Request{Method: "GET", Host: "who.example", Port: 99, Path: "/"}
	if got := sent(t, push.Sidecar, only).Route(unknown); len(got) != 1 || got[0].Flags != "UH" ||
		!strings.Contains(got[0].Reason, "REGISTRY_ONLY") {
		t.Errorf("REGISTRY_ONLY: got %+v", got)
	}
	plain := slices.DeleteFunc(sent(t, push.Sidecar, routes), func(r *resource.Resource) bool { return r.Name == "virtualOutbound" })
	if got := plain.Route(unknown); got != nil {
		t.Errorf("a port without a listener: got %+v", got)
	}
	unknown.Port = 80
	if got := plain.Route(unknown); len(got) != 1 || got[0].Code != 503 || got[0].Flags != "UH" || got[0].Endpoints != 0 {
		t.Errorf("not intercepted: got %+v", got)
	}
	dynamic := config.DefaultMesh()
	dynamic.OutboundTrafficPolicy.Mode = mesh.MeshConfig_OutboundTrafficPolicy_ALLOW_ANY_DYNAMIC_DNS
	for _, unknown.Port = range []uint32{80, 99} {
		got := sentIn(t, dynamic, push.Sidecar, routes).Route(unknown)
		if len(got) != 1 || got[0].Code != 0 || got[0].Connection || got[0].Cluster != "AllowAnyDynamicDNSCluster" {
			t.Errorf("ALLOW_ANY_DYNAMIC_DNS, port %d: got %+v", unknown.Port, got)
		}
	}
}

// The endpoints of a subset are those with its labels.
func TestRouteAddresses(t *testing.T) {
	t.Parallel()
	rule := strings.Replace(routes, "version: canary", "app: web", 1)
	r := Request{Method: "GET", Host: "web.example", Port: 80, Path: "/items"}
	for value, want := range map[string][]string{"true": {"10.0.0.1:8080"}, "no": {"10.0.0.1:8080", "10.0.0.2:8080"}} {
		r.Headers = map[string]string{"x-canary": value}
		got := sent(t, push.Sidecar, rule).Route(r)
		if len(got) != 1 || !slices.Equal(slices.Sorted(slices.Values(got[0].Addresses)), want) {
			t.Errorf("x-canary %s: got %+v, want endpoints %v", value, got, want)
		}
	}
}

// The most specific domain of a route configuration takes a request.
func TestRankDomain(t *testing.T) {
	t.Parallel()
	order := []string{"a.b.example", "*.b.example", "*.example", "a.b.exampl*", "a.*", "*"}
	for i, d := range order {
		if n := rankDomain(d, "a.b.example"); n <= 0 || i > 0 && n >= rankDomain(order[i-1], "a.b.example") {
			t.Errorf("%s has the rank %d", d, n)
		}
	}
	for _, d := range []string{"b.example", "*.c.example", "b.*"} {
		if n := rankDomain(d, "a.b.example"); n != 0 {
			t.Errorf("%s has the rank %d, want none", d, n)
		}
	}
}

// A destination with a DestinationRule gets the TLS that this says.
func TestRouteTLS(t *testing.T) {
	t.Parallel()
	for mode, want := range map[string]string{"ISTIO_MUTUAL": "mutual TLS", "SIMPLE": "TLS", "DISABLE": "plaintext"} {
		rule := "apiVersion: networking.istio.io/v1\nkind: DestinationRule\nmetadata: {name: web, namespace: shop}\n" +
			"spec: {host: web.example, trafficPolicy: {tls: {mode: " + mode + "}}}\n"
		hops := sent(t, push.Sidecar, rule).Route(Request{Host: "web.example", Port: 80, Method: "GET", Path: "/"})
		if len(hops) != 1 || hops[0].TLS != want {
			t.Errorf("%s: got %+v, want %s", mode, hops, want)
		}
	}
}

// A gateway routes what arrives at the ports of its servers.
func TestRouteOfGateway(t *testing.T) {
	t.Parallel()
	gateway := `
apiVersion: networking.istio.io/v1
kind: Gateway
metadata: {name: gw, namespace: shop}
spec:
  selector: {app: gateway}
  servers:
  - {port: {number: 8080, name: http, protocol: HTTP}, hosts: ["*"]}
  - {port: {number: 8082, name: bound, protocol: HTTP}, bind: 10.0.0.9, hosts: ["*"]}
  - {port: {number: 8081, name: http2, protocol: HTTP}, hosts: [web.example], tls: {httpsRedirect: true}}
  - {port: {number: 443, name: https, protocol: HTTPS}, hosts: ["*.example"], tls: {mode: SIMPLE, serverCertificate: /c.pem, privateKey: /k.pem}}
---
apiVersion: networking.istio.io/v1
kind: VirtualService
metadata: {name: web, namespace: shop}
spec: {hosts: [web.example], gateways: [gw], http: [{route: [{destination: {host: web.example, port: {number: 80}}}]}]}
`
	rs := sent(t, push.Router, gateway)
	web := Hop{Cluster: "outbound|80||web.example"}
	for port, want := range map[uint32]Hop{8080: web, 8082: web, 443: web, 8081: {Code: 301}} {
		got := rs.Route(Request{Host: "web.example", Port: port, Method: "GET", Path: "/"})
		if len(got) != 1 || got[0].Cluster != want.Cluster || got[0].Code != want.Code {
			t.Errorf("port %d: got %+v, want %+v", port, got, want)
		}
	}
	if got := rs.Route(Request{Host: "other.example", Port: 8080, Path: "/"}); len(got) != 1 || got[0].Flags != "NR" {
		t.Errorf("another host: got %+v", got)
	}
}
