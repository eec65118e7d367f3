package gen

import (
	"testing"

	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	corsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/cors/v3"
	faultv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/fault/v3"
	routerv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/router/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"

	"github.com/ashore-mesh/ashore/push"
	"github.com/ashore-mesh/ashore/xds/gen/envoy"
)

// everyForm is a VirtualService that uses every field of HTTP routes.
const everyForm = `
  http:
  - name: match
    match:
    - {name: a, statPrefix: a, uri: {exact: /a}, ignoreUriCase: true}
    - {uri: {prefix: /b}, scheme: {exact: http}, method: {regex: "GET|PUT"}, authority: {prefix: a}}
    - {uri: {regex: "/c.*"}, port: 80, gateways: [mesh, edge/gw]}
    - headers: {a: {exact: x}, b: {prefix: x}, c: {regex: "x+"}, d: {}}
      withoutHeaders: {e: {exact: x}, f: {}, c: {regex: "y+"}}
      queryParams: {q: {exact: x}, r: {regex: "x+"}, s: {}, t: {prefix: x}}
    route: [{destination: {host: web, port: {number: 80}}}]
  - match: [{uri: {prefix: /redirect}}]
    redirect: {uri: /x, authority: r.x, scheme: https, derivePort: FROM_REQUEST_PORT, redirectCode: 307}
  - match: [{uri: {prefix: /direct}}]
    directResponse: {status: 418, body: {string: "100 % tea"}}
  - match: [{uri: {prefix: /rewrite}}]
    rewrite: {uri: /, authority: r.x}
    timeout: 2.5s
    retries: {attempts: 5, perTryTimeout: 1s, retryOn: "5xx,429,cancelled", backoff: 100ms, retryRemoteLocalities: true, retryIgnorePreviousHosts: true}
    route:
    - {destination: {host: web, subset: v1, port: {number: 80}}, weight: 20, headers: {request: {set: {a: "%DOWNSTREAM_REMOTE_ADDRESS%"}, add: {b: "1"}, remove: [c]}, response: {set: {d: e}}}}
    - {destination: {host: api.example.com}, weight: 80}
  - match: [{uri: {prefix: /regex}}]
    rewrite: {uriRegexRewrite: {match: "^/regex/(.*)$", rewrite: '/v/\1'}}
    fault: {delay: {fixedDelay: 1s, percentage: {value: 0.5}}, abort: {httpStatus: 500, percentage: {value: 10}}}
    corsPolicy: {allowOrigins: [{exact: "https://a.x"}, {prefix: "https://b"}, {regex: ".*"}], allowMethods: [GET], allowHeaders: [a], exposeHeaders: [b], maxAge: 24h, allowCredentials: true}
    mirrors: [{destination: {host: web, port: {number: 9090}}, percentage: {value: 33.3}}]
    headers: {request: {set: {a: b}}, response: {remove: [server]}}
    route: [{destination: {host: hashed.x}}]
  - fault: {abort: {grpcStatus: "UNAVAILABLE", percentage: {value: 100}}}
    mirror: {host: api.example.com}
    mirrorPercentage: {value: 1}
    route: [{destination: {host: nowhere.x, subset: none}}]
---
apiVersion: networking.istio.io/v1
kind: ServiceEntry
metadata: {name: hashed, namespace: shop}
spec:
  hosts: [hashed.x]
  addresses: [10.0.0.7]
  ports: [{number: 80, name: http, protocol: HTTP}, {number: 81, name: sniffed}]
  resolution: STATIC
---
apiVersion: networking.istio.io/v1
kind: DestinationRule
metadata: {name: hashed, namespace: shop}
spec:
  host: hashed.x
  trafficPolicy: {loadBalancer: {consistentHash: {httpCookie: {name: c, path: /, ttl: 0s}}}}
---
apiVersion: networking.istio.io/v1
kind: Sidecar
metadata: {name: ports, namespace: ports}
spec:
  egress:
  - {port: {number: 0, name: unix, protocol: HTTP}, bind: "unix:///run/ashore.sock", captureMode: NONE, hosts: ["*/*"]}
  - {port: {number: 9090, name: http, protocol: HTTP}, hosts: ["*/*"]}
  - {hosts: ["*/*"]}
`

// inListeners puts every route configuration of a scope into a listener of its own.
func inListeners(t *testing.T, sc *push.Scope) []*listenerv3.Listener {
	t.Helper()
	var out []*listenerv3.Listener
	for name, rc := range routesOf(t, New(), sc) {
		out = append(out, routeListener(name, uint32(20000+len(out)), rc))
	}
	return out
}

func routeListener(name string, port uint32, rc *routev3.RouteConfiguration) *listenerv3.Listener {
	manager := &hcmv3.HttpConnectionManager{
		StatPrefix: "test",
		HttpFilters: []*hcmv3.HttpFilter{
			envoy.HTTPFilter("envoy.filters.http.fault", &faultv3.HTTPFault{}),
			envoy.HTTPFilter("envoy.filters.http.cors", &corsv3.Cors{}),
			envoy.HTTPFilter("envoy.filters.http.router", &routerv3.Router{}),
		},
		RouteSpecifier: &hcmv3.HttpConnectionManager_RouteConfig{RouteConfig: rc},
	}
	return &listenerv3.Listener{
		Name:    name,
		Address: envoy.SocketAddress("127.0.0.1", port),
		FilterChains: []*listenerv3.FilterChain{{Filters: []*listenerv3.Filter{
			envoy.NetworkFilter("envoy.filters.network.http_connection_manager", manager),
		}}},
	}
}

// A real Envoy takes all that VirtualServices can say, without a word.
func TestEnvoyTakesRoutes(t *testing.T) {
	t.Parallel()
	m := meshOf(t, shopServices+
		vsYAML("all", "[web, foreign.org, '*.wild.com', '*.example.com']", "  gateways: [mesh, edge/gw]\n"+everyForm)+
		gatewayYAML("gw", plainServer+"'*']}\n"+tlsServer+"'shop/*.org', web.shop.svc.cluster.local]}\n  - {port: {number: 81, name: redirect, protocol: HTTP}, tls: {httpsRedirect: true}, hosts: [a.com]}\n"))
	m.inputs.Mesh.Config.ProxyHttpPort = 15002
	m.context = push.Build(nil, m.inputs)
	scopes := map[string]*push.Scope{
		"sidecar": m.sidecar("shop"),
		"ports":   m.sidecar("ports"),
		"router":  m.router("app=gw"),
	}
	for name, sc := range scopes {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			listeners := inListeners(t, sc)
			if len(listeners) == 0 {
				t.Fatal("no route configuration")
			}
			acceptedByEnvoy(t, listeners)
		})
	}
}
