package gen

import (
	"strings"
	"testing"

	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/testing/protocmp"

	"github.com/ashore-mesh/ashore/push"
)

// indented is YAML text, moved to the right.
func indented(text string) string {
	return "    " + strings.ReplaceAll(strings.TrimSpace(text), "\n", "\n    ") + "\n"
}

// ruleOf builds the routes of one HTTP rule on port 80 of a sidecar; without what every route has
// (the tests of TestEveryRoute look at that).
func ruleOf(t *testing.T, rule string) []*routev3.Route {
	t.Helper()
	text := vsYAML("v", "[api.example.com]", "  http:\n"+strings.Replace(indented(rule), "    ", "  - ", 1))
	rc := routesOf(t, New(), meshOf(t, shopServices+onePort+text).sidecar("shop"))["80"]
	for _, vh := range rc.GetVirtualHosts() {
		if vh.Name != "api.example.com:80" {
			continue
		}
		for _, r := range vh.Routes {
			r.Metadata, r.Decorator = nil, nil
			if a := r.GetRoute(); a != nil {
				if isDefaultRetry(a.RetryPolicy) {
					a.RetryPolicy = nil
				}
				if a.Timeout.AsDuration() == 0 {
					a.Timeout = nil
				}
			}
		}
		return vh.Routes
	}
	t.Fatal("no virtual host for api.example.com")
	return nil
}

func checkRoute(t *testing.T, got *routev3.Route, want string) {
	t.Helper()
	w := &routev3.Route{}
	if err := protojson.Unmarshal([]byte(want), w); err != nil {
		t.Fatalf("the expectation is no route: %v", err)
	}
	if d := cmp.Diff(w, got, protocmp.Transform()); d != "" {
		t.Errorf("route (-want +got):\n%s", d)
	}
}

func TestRouteMatch(t *testing.T) {
	t.Parallel()
	tests := []struct{ name, match, want string }{
		{"exact path", `uri: {exact: /a}`, `{"path": "/a"}`},
		{"prefix", `uri: {prefix: /a}`, `{"prefix": "/a"}`},
		{"regex", `uri: {regex: "/a.*"}`, `{"safeRegex": {"regex": "/a.*"}}`},
		{"ignoring case", `{uri: {prefix: /a}, ignoreUriCase: true}`, `{"prefix": "/a", "caseSensitive": false}`},
		{"method, authority, scheme", `{method: {exact: GET}, authority: {prefix: a}, scheme: {regex: "https?"}}`,
			`{"prefix": "/", "headers": [
				{"name": ":method", "stringMatch": {"exact": "GET"}},
				{"name": ":authority", "stringMatch": {"prefix": "a"}},
				{"name": ":scheme", "stringMatch": {"safeRegex": {"regex": "https?"}}}]}`},
		{"headers", `{headers: {b: {exact: x}, a: {prefix: y}, c: {regex: "z+"}}}`,
			`{"prefix": "/", "headers": [
				{"name": "a", "stringMatch": {"prefix": "y"}},
				{"name": "b", "stringMatch": {"exact": "x"}},
				{"name": "c", "stringMatch": {"safeRegex": {"regex": "z+"}}}]}`},
		{"a header that is there", `{headers: {a: {}, b: {}}}`,
			`{"prefix": "/", "headers": [{"name": "a", "presentMatch": true}, {"name": "b", "presentMatch": true}]}`},
		{"a header that is not there or differs", `{headers: {b: {exact: "1"}}, withoutHeaders: {a: {}, b: {exact: x}}}`,
			`{"prefix": "/", "headers": [
				{"name": "a", "presentMatch": true, "invertMatch": true},
				{"name": "b", "stringMatch": {"exact": "1"}},
				{"name": "b", "stringMatch": {"exact": "x"}, "invertMatch": true, "treatMissingHeaderAsEmpty": true}]}`},
		{"no header, by the expression for any", `{headers: {b: {regex: ".*"}}, withoutHeaders: {a: {regex: ".*"}}}`,
			`{"prefix": "/", "headers": [
				{"name": "a", "presentMatch": true, "invertMatch": true},
				{"name": "b", "stringMatch": {"safeRegex": {"regex": ".*"}}}]}`},
		{"parts of the request, and the expression that is none", `{headers: {":method": {exact: GET}}, withoutHeaders: {a: {regex: "*"}}}`,
			`{"prefix": "/", "headers": [
				{"name": ":method", "stringMatch": {"exact": "GET"}},
				{"name": "a", "presentMatch": true, "invertMatch": true}]}`},
		{"query parameters", `{queryParams: {q: {exact: "1"}, p: {}, r: {regex: "\\d+"}}}`,
			`{"prefix": "/", "queryParameters": [
				{"name": "p", "presentMatch": true},
				{"name": "q", "stringMatch": {"exact": "1"}},
				{"name": "r", "stringMatch": {"safeRegex": {"regex": "\\d+"}}}]}`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			match := strings.Replace(indented(tt.match), "    ", "  - ", 1)
			got := ruleOf(t, "match:\n"+match+"route: [{destination: {host: one.x}}]")
			checkRoute(t, got[0], `{"match": `+tt.want+`, "route": {"cluster": "outbound|7000||one.x"}}`)
		})
	}
}

func TestRouteAction(t *testing.T) {
	t.Parallel()
	const (
		every = `"match": {"prefix": "/"}`
		one   = "route: [{destination: {host: one.x}}]\n"
		toOne = `"cluster": "outbound|7000||one.x"`
	)
	tests := []struct{ name, rule, want string }{
		{"names and a prefix of metrics", "name: r\nmatch: [{name: m, statPrefix: s}]\n" + one,
			`{"name": "r.m", "statPrefix": "s", ` + every + `, "route": {` + toOne + `}}`},
		{"weights", `route:
- {destination: {host: one.x, subset: v1}, weight: 1, headers: {request: {set: {a: "1"}}, response: {remove: [b]}}}
- {destination: {host: one.x, subset: v2}, weight: 0}
- {destination: {host: one.x, port: {number: 5}}, weight: 99}`,
			`{` + every + `, "route": {"weightedClusters": {"clusters": [
				{"name": "outbound|7000|v1|one.x", "weight": 1, "responseHeadersToRemove": ["b"],
					"requestHeadersToAdd": [{"header": {"key": "a", "value": "1"}, "appendAction": "OVERWRITE_IF_EXISTS_OR_ADD"}]},
				{"name": "outbound|5||one.x", "weight": 99}]}}}`},
		{"timeout", "timeout: 3s\n" + one, `{` + every + `, "route": {` + toOne + `, "timeout": "3s"}}`},
		{"rewrite", "rewrite: {uri: /b, authority: b.x}\n" + one, `{` + every + `, "route": {` + toOne + `, "prefixRewrite": "/b", "hostRewriteLiteral": "b.x"}}`},
		{"rewrite by regex", "rewrite: {uriRegexRewrite: {match: '^/(.*)', rewrite: '/v1/\\1'}}\n" + one,
			`{` + every + `, "route": {` + toOne + `, "regexRewrite": {"pattern": {"regex": "^/(.*)"}, "substitution": "/v1/\\1"}}}`},
		{"headers of route and destination", `headers: {request: {set: {b: "1", a: "2"}, add: {c: "3"}, remove: [d]}, response: {add: {e: "5"}}}
route: [{destination: {host: one.x}, headers: {request: {set: {f: "6"}}, response: {remove: [g]}}}]`,
			`{` + every + `, "route": {` + toOne + `},
				"requestHeadersToAdd": [
					{"header": {"key": "a", "value": "2"}, "appendAction": "OVERWRITE_IF_EXISTS_OR_ADD"},
					{"header": {"key": "b", "value": "1"}, "appendAction": "OVERWRITE_IF_EXISTS_OR_ADD"},
					{"header": {"key": "c", "value": "3"}},
					{"header": {"key": "f", "value": "6"}, "appendAction": "OVERWRITE_IF_EXISTS_OR_ADD"}],
				"requestHeadersToRemove": ["d"],
				"responseHeadersToAdd": [{"header": {"key": "e", "value": "5"}}],
				"responseHeadersToRemove": ["g"]}`},
		{"mirror", "mirror: {host: m.x}\nmirrorPercentage: {value: 12.5}\nmirrors: []\n" + one,
			`{` + every + `, "route": {` + toOne + `, "requestMirrorPolicies": [{"cluster": "outbound|80||m.x", "traceSampled": false, "disableShadowHostSuffixAppend": true,
				"runtimeFraction": {"defaultValue": {"numerator": 125000, "denominator": "MILLION"}}}]}}`},
		{"mirrors", "mirrors: [{destination: {host: m.x}}, {destination: {host: n.x}, percentage: {value: 7}}]\n" + one,
			`{` + every + `, "route": {` + toOne + `, "requestMirrorPolicies": [
				{"cluster": "outbound|80||m.x", "traceSampled": false, "disableShadowHostSuffixAppend": true, "runtimeFraction": {"defaultValue": {"numerator": 100}}},
				{"cluster": "outbound|80||n.x", "traceSampled": false, "disableShadowHostSuffixAppend": true, "runtimeFraction": {"defaultValue": {"numerator": 7}}}]}}`},
		{"direct response", "directResponse: {status: 418, body: {string: tea}}", `{` + every + `, "directResponse": {"status": 418, "body": {"inlineString": "tea"}}}`},
		{"direct response in bytes", "directResponse: {status: 200, body: {bytes: dGVh}}", `{` + every + `, "directResponse": {"status": 200, "body": {"inlineBytes": "dGVh"}}}`},
		{"redirect", "redirect: {uri: /x, authority: r.x, scheme: https, port: 8443, redirectCode: 308}",
			`{` + every + `, "redirect": {"hostRedirect": "r.x", "pathRedirect": "/x", "schemeRedirect": "https", "portRedirect": 8443, "responseCode": "PERMANENT_REDIRECT"}}`},
		{"redirect to the default port", "redirect: {authority: r.x, derivePort: FROM_REQUEST_PORT}", `{` + every + `, "redirect": {"hostRedirect": "r.x"}}`},
		{"redirect with the request's port", "redirect: {authority: r.x, scheme: https, derivePort: FROM_REQUEST_PORT}",
			`{` + every + `, "redirect": {"hostRedirect": "r.x", "schemeRedirect": "https", "portRedirect": 80}}`},
		{"delay", "fault: {delay: {fixedDelay: 2s, percentage: {value: 0.1}}}\n" + one,
			`{` + every + `, "route": {` + toOne + `}, "typedPerFilterConfig": {"envoy.filters.http.fault": {
				"@type": "type.googleapis.com/envoy.extensions.filters.http.fault.v3.HTTPFault",
				"delay": {"fixedDelay": "2s", "percentage": {"numerator": 1000, "denominator": "MILLION"}}}}}`},
		{"abort", "fault: {abort: {httpStatus: 503, percentage: {value: 100}}}\n" + one,
			`{` + every + `, "route": {` + toOne + `}, "typedPerFilterConfig": {"envoy.filters.http.fault": {
				"@type": "type.googleapis.com/envoy.extensions.filters.http.fault.v3.HTTPFault",
				"abort": {"httpStatus": 503, "percentage": {"numerator": 100}}}}}`},
		{"abort with a gRPC status", "fault: {abort: {grpcStatus: UNAVAILABLE, percentage: {value: 50}}}\n" + one,
			`{` + every + `, "route": {` + toOne + `}, "typedPerFilterConfig": {"envoy.filters.http.fault": {
				"@type": "type.googleapis.com/envoy.extensions.filters.http.fault.v3.HTTPFault",
				"abort": {"grpcStatus": 14, "percentage": {"numerator": 50}}}}}`},
		{"CORS", `corsPolicy: {allowOrigins: [{exact: "https://a.x"}, {regex: ".*\\.b\\.x"}], allowMethods: [GET, PUT], allowHeaders: [h, i], exposeHeaders: [e], maxAge: 24h, allowCredentials: true, unmatchedPreflights: IGNORE}` + "\n" + one,
			`{` + every + `, "route": {` + toOne + `}, "typedPerFilterConfig": {"envoy.filters.http.cors": {
				"@type": "type.googleapis.com/envoy.extensions.filters.http.cors.v3.CorsPolicy",
				"allowOriginStringMatch": [{"exact": "https://a.x"}, {"safeRegex": {"regex": ".*\\.b\\.x"}}],
				"allowMethods": "GET,PUT", "allowHeaders": "h,i", "exposeHeaders": "e", "maxAge": "86400", "allowCredentials": true,
				"filterEnabled": {"defaultValue": {"numerator": 100}}, "forwardNotMatchingPreflights": false}}}`},
		{"retries", "retries: {attempts: 3, perTryTimeout: 2s, retryOn: 'gateway-error, 409,reset', backoff: 1s, retryRemoteLocalities: true, retryIgnorePreviousHosts: false}\n" + one,
			`{` + every + `, "route": {` + toOne + `, "retryPolicy": {"numRetries": 3, "perTryTimeout": "2s", "hostSelectionRetryMaxAttempts": "5",
				"retryOn": "gateway-error,reset,retriable-status-codes", "retriableStatusCodes": [409], "retryBackOff": {"baseInterval": "1s"},
				"retryPriority": {"name": "envoy.retry_priorities.previous_priorities", "typedConfig": {
					"@type": "type.googleapis.com/envoy.extensions.retry.priority.previous_priorities.v3.PreviousPrioritiesConfig", "updateFrequency": 2}}}}}`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			checkRoute(t, ruleOf(t, tt.rule)[0], tt.want)
		})
	}
}

// Zero attempts turn retries off; nothing said is the mesh's policy.
func TestRetries(t *testing.T) {
	t.Parallel()
	off := ruleOf(t, "retries: {attempts: 0}\nroute: [{destination: {host: one.x}}]")
	checkRoute(t, off[0], `{"match": {"prefix": "/"}, "route": {"cluster": "outbound|7000||one.x"}}`)
}

// The first rule that matches is used: what follows a route without conditions is never reached.
func TestNothingFollowsTheCatchAll(t *testing.T) {
	t.Parallel()
	got := ruleOf(t, `match: [{uri: {prefix: /a}}, {uri: {prefix: /}}, {uri: {prefix: /b}}]
route: [{destination: {host: one.x}}]`)
	if len(got) != 2 {
		t.Errorf("got %d routes, want 2: %v", len(got), got)
	}
}

// Requests are hashed where the rule of the destination says so: its subset's before its port's and
// the host's.
func TestRouteHash(t *testing.T) {
	t.Parallel()
	const rule = `
---
apiVersion: networking.istio.io/v1
kind: DestinationRule
metadata: {name: hash, namespace: shop}
spec:
  host: api.example.com
  trafficPolicy:
    loadBalancer: {consistentHash: {httpHeaderName: h}}
    portLevelSettings: [{port: {number: 81}, loadBalancer: {consistentHash: {httpQueryParameterName: q}}}]
  subsets:
  - {name: v1, labels: {v: "1"}, trafficPolicy: {loadBalancer: {consistentHash: {httpCookie: {name: c, path: /, ttl: 3s}}}}}
  - {name: v2, labels: {v: "2"}, trafficPolicy: {loadBalancer: {simple: RANDOM}}}
`
	const (
		header = `{"header": {"headerName": "h"}}`
		query  = `{"queryParameter": {"name": "q"}}`
		cookie = `{"cookie": {"name": "c", "path": "/", "ttl": "3s"}}`
	)
	tests := []struct{ name, destinations, want string }{
		{"no VirtualService", "", header},
		{"the host", "[{destination: {host: api.example.com}}]", header},
		{"a port", "[{destination: {host: api.example.com, port: {number: 81}}}]", query},
		{"a subset", "[{destination: {host: api.example.com, subset: v1}}]", cookie},
		{"a subset without", "[{destination: {host: api.example.com, subset: v2}}]", ""},
		{"an unknown subset", "[{destination: {host: api.example.com, subset: v3}}]", header},
		{"another host", "[{destination: {host: one.x}}]", ""},
		{"several", "[{destination: {host: api.example.com, subset: v1}, weight: 1}, {destination: {host: api.example.com}, weight: 1}]", cookie + "," + header},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			text := shopServices + onePort + rule
			if tt.destinations != "" {
				text += vsYAML("v", "[api.example.com]", "  http:\n  - route: "+tt.destinations+"\n")
			}
			rc := routesOf(t, New(), meshOf(t, text).sidecar("shop"))["80"]
			want, got := &routev3.RouteAction{}, rc.VirtualHosts[0].Routes[0].GetRoute()
			if err := protojson.Unmarshal([]byte(`{"hashPolicy": [`+tt.want+`]}`), want); err != nil {
				t.Fatal(err)
			}
			if d := cmp.Diff(want.HashPolicy, got.HashPolicy, protocmp.Transform()); d != "" {
				t.Errorf("hash policy (-want +got):\n%s", d)
			}
			if single := len(got.HashPolicy) == 1; single != (len(got.RetryPolicy.RetryHostPredicate) == 0) {
				t.Errorf("retries of hashed requests: %v", got.RetryPolicy)
			}
		})
	}
}

// Conditions on the source hold for some proxies only.
func TestRouteSources(t *testing.T) {
	t.Parallel()
	m := meshOf(t, shopServices+vsYAML("v", "[api.example.com]", `  gateways: [mesh, edge/gw]
  http:
  - match: [{sourceLabels: {app: a}}]
    route: [{destination: {host: a.x}}]
  - match: [{sourceNamespace: prod}]
    route: [{destination: {host: b.x}}]
  - match: [{gateways: [mesh], sourceLabels: {app: c}}, {gateways: [edge/gw]}]
    route: [{destination: {host: c.x}}]
  - match: [{port: 81}]
    route: [{destination: {host: d.x}}]
`))
	tests := []struct {
		scope *push.Scope
		want  string
	}{
		{m.sidecar("shop", "app=a"), "outbound|80||a.x"},
		{m.sidecar("prod"), "outbound|80||b.x"},
		{m.sidecar("prod", "app=a", "x=y"), "outbound|80||a.x"}, // nothing follows it
		{m.sidecar("shop", "app=c"), "outbound|80||c.x"},
		{m.sidecar("shop"), "outbound|80||api.example.com"},
	}
	g := New()
	for _, tt := range tests {
		var got []string
		for _, r := range routesOf(t, g, tt.scope)["80"].VirtualHosts[0].Routes {
			got = append(got, namedClusters(r)...)
		}
		if strings.Join(got, " ") != tt.want {
			t.Errorf("got %q, want %q", got, tt.want)
		}
	}
}

// What every route has.
func TestEveryRoute(t *testing.T) {
	t.Parallel()
	text := vsYAML("v", "[api.example.com]",
		"  http:\n  - match: [{uri: {exact: /a}}]\n    route: [{destination: {host: one.x}}]\n")
	rc := routesOf(t, New(), meshOf(t, shopServices+onePort+text).sidecar("shop"))["80"]
	const retry = `"retryPolicy": {
		"retryOn": "connect-failure,refused-stream,unavailable,cancelled,retriable-status-codes", "numRetries": 2, "hostSelectionRetryMaxAttempts": "5",
		"retryHostPredicate": [{"name": "envoy.retry_host_predicates.previous_hosts", "typedConfig": {
			"@type": "type.googleapis.com/envoy.extensions.retry.host.previous_hosts.v3.PreviousHostsPredicate"}}]}`
	checkRoute(t, rc.VirtualHosts[0].Routes[0], `{
		"match": {"path": "/a"},
		"route": {"cluster": "outbound|7000||one.x", "timeout": "0s", `+retry+`},
		"metadata": {"filterMetadata": {"istio": {"config": "/apis/networking.istio.io/v1/namespaces/shop/virtual-service/v"}}},
		"decorator": {"operation": "one.x:7000/a"}}`)
	checkRoute(t, rc.VirtualHosts[1].Routes[0], `{
		"name": "default", "match": {"prefix": "/"},
		"route": {"cluster": "outbound|80||web.shop.svc.cluster.local", "timeout": "0s", `+retry+`},
		"decorator": {"operation": "web.shop.svc.cluster.local:80/*"}}`)
	if rc.ValidateClusters == nil || rc.ValidateClusters.Value || !rc.IgnorePortInHostMatching ||
		rc.MaxDirectResponseBodySizeBytes.Value != 1<<20 {
		t.Errorf("got %v", rc)
	}
}

// isDefaultRetry says whether a policy is that of routes that set none, for requests that are not
// hashed.
func isDefaultRetry(p *routev3.RetryPolicy) bool {
	return p.GetNumRetries().GetValue() == 2 && len(p.GetRetryHostPredicate()) == 1 && p.RetryPriority == nil &&
		p.PerTryTimeout == nil && p.RetryBackOff == nil &&
		p.RetryOn == "connect-failure,refused-stream,unavailable,cancelled,retriable-status-codes"
}
