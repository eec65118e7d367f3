package push_test

import (
	"testing"

	"github.com/ashore-mesh/ashore/config"
)

// Routes that never answer, because another Gateway has the same host on the same port of the same proxies and its
// routes come first, are told of.
func TestDanglingSharedGateways(t *testing.T) {
	t.Parallel()
	reviews := entryOf("shop/reviews", "reviews.shop.svc.cluster.local", "")
	gateway := func(name, selector, port, host string) string {
		return yamlOf(config.Gateway, name, "selector: {"+selector+"}, servers: [{port: {"+port+", name: http, protocol: HTTP}, hosts: ["+host+"]}]")
	}
	const app, port = "app: gw", "number: 80"
	route := func(name, host, gateways, match string) string {
		return routeOf(name, "hosts: ["+host+"], gateways: ["+gateways+"], http: [{"+match+"route: [{destination: {host: reviews.shop.svc.cluster.local}}]}]")
	}
	const ab, users = `match: [{uri: {prefix: /a}}, {uri: {prefix: /b}}], `, `match: [{uri: {prefix: /a}}], `
	two := func(second, secondRoute string) []string {
		return []string{reviews, gateway("edge/a", app, port, "x.example.com"), second, route("shop/a", "x.example.com", "edge/a", ""), secondRoute}
	}
	plain := route("shop/b", "x.example.com", "edge/b", "")
	same := gateway("edge/b", app, port, "x.example.com")
	const shadowed = "VirtualService shop/b spec.hosts: has no effect for host x.example.com on port 80 of Gateway edge/b, because Gateway edge/a (mesh.yaml:6) "
	checkDangling(t, []danglingCase{
		{
			"the same host on the same port", two(same, plain),
			[]string{"mesh.yaml:21: " + shadowed + "has that host on that port of the same proxies too and comes first, by age or by name, and so do the routes of its VirtualService shop/a (mesh.yaml:16), " +
				"which take these requests: put the routes of both into one VirtualService, or give the Gateways different hosts, ports or selectors"},
		},
		{"what asks for everything comes last", two(same, route("shop/b", "x.example.com", "edge/b", ab)), nil},
		{"under a wildcard of the second", two(gateway("edge/b", app, port, `"*.example.com"`), plain), []string{shadowed}},
		{"the host of a wildcard route", two(same, route("shop/b", `"*.example.com"`, "edge/b", "")), []string{shadowed}},
		{"the second selects fewer proxies", two(gateway("edge/b", app+", v: v1", port, "x.example.com"), plain), []string{shadowed}},
		{"the second selects more proxies", []string{
			reviews, gateway("edge/a", app+", v: v1", port, "x.example.com"), same, route("shop/a", "x.example.com", "edge/a", ""), plain,
		}, nil},
		{"a server that redirects to HTTPS", two(yamlOf(config.Gateway, "edge/b", "selector: {"+app+"}, servers: [{port: {"+port+", name: http, protocol: HTTP}, hosts: [x.example.com], tls: {httpsRedirect: true}}]"), plain), nil},
		{"other proxies", two(gateway("edge/b", "app: other", port, "x.example.com"), plain), nil},
		{"another port", two(gateway("edge/b", app, "number: 8080", "x.example.com"), plain), nil},
		{"another host", two(gateway("edge/b", app, port, "y.example.com"), route("shop/b", "y.example.com", "edge/b", "")), nil},
		{"a narrower host under a wildcard", two(gateway("edge/b", app, port, `"*.example.com"`), route("shop/b", "y.example.com", "edge/b", "")), nil},
		{"for namespaces of their own", two(gateway("edge/b", app, port, "other/x.example.com, shop/z.example.com"), route("shop/b", "z.example.com", "edge/b", "")), nil},
		{"one VirtualService for both", []string{
			reviews, gateway("edge/a", app, port, "x.example.com"), same, route("shop/a", "x.example.com", "edge/a, edge/b", ""),
		}, nil},
		{"the first routes something else", []string{
			reviews, gateway("edge/a", app, port, "x.example.com"), same, route("shop/a", "x.example.com", "edge/a", users), plain,
		}, nil},
		{
			"the first routes a part of it", []string{
				reviews, gateway("edge/a", app, port, "x.example.com"), same, route("shop/a", "x.example.com", "edge/a", ab),
				routeOf("shop/b", "hosts: [x.example.com], gateways: [edge/b], http: [{route: [{destination: {host: reviews}}], match: [{uri: {prefix: /b}}]}, {route: [{destination: {host: reviews}}]}]"),
			},
			[]string{"VirtualService shop/b spec.http[0]: spec.http[0] has no effect for host x.example.com on port 80 of Gateway edge/b, because Gateway edge/a (mesh.yaml:6) "},
		},
		{"for clients of other namespaces", []string{
			reviews, gateway("edge/a", app, port, "x.example.com"), same,
			routeOf("shop/a", "hosts: [x.example.com], gateways: [edge/a], exportTo: [one], http: [{route: [{destination: {host: reviews}}]}]"), plain,
			entryOf("one/reviews", "reviews.one.svc.cluster.local", ""),
		}, nil},
	})
}
