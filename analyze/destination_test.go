package analyze_test

import (
	"testing"

	"github.com/ashore-mesh/ashore/config"
)

func TestDestinations(t *testing.T) {
	t.Parallel()
	reviews := service("shop/reviews", "reviews.shop.svc.cluster.local", "")
	subsets := rule("shop/reviews", "host: reviews, subsets: [{name: v1}, {name: v2}]")
	to := func(destination string) string {
		return route("shop/r", "hosts: [reviews], http: [{route: [{destination: {"+destination+"}}]}]")
	}
	const at = "IST0101 mesh.yaml:6 VirtualService shop/r spec.http[0].route[0].destination"
	check(t, []testCase{
		{"all is well", []string{reviews, subsets, to("host: reviews, port: {number: 9090}, subset: v2")}, nil},
		{
			"unknown host", []string{reviews, to("host: reviws")},
			[]string{at + ".host: no service has host reviws.shop.svc.cluster.local, so requests that are routed there fail | " +
				"use a host that exists (did you mean reviews.shop.svc.cluster.local?), or declare the service"},
		},
		{
			"a name with a dot is complete", []string{reviews, to("host: reviews.shop")},
			[]string{at + ".host: no service has host reviews.shop, so requests that are routed there fail | use a host that exists (did you mean reviews.shop.svc.cluster.local?)"},
		},
		{
			"a short name of other hosts", []string{service("data/db", "db.internal", ""), service("data/db2", "db.data.svc.cluster.local", ""), reviews, to("host: db")},
			[]string{`no service has host db.shop.svc.cluster.local, so requests that are routed there fail | use a host that exists (did you mean db.data.svc.cluster.local, db.internal?)`},
		},
		{
			"every place", []string{reviews, route("shop/r", `hosts: [reviews],
  http: [{match: [{uri: {prefix: /a}}], route: [{destination: {host: reviews}, weight: 50}, {destination: {host: one}, weight: 50}], mirrors: [{destination: {host: two}, percentage: {value: 1}}]},
    {route: [{destination: {host: reviews}}], mirror: {host: three}}],
  tcp: [{route: [{destination: {host: four}}]}],
  tls: [{match: [{sniHosts: [reviews]}], route: [{destination: {host: five}}]}]`)},
			[]string{
				"spec.http[0].mirrors[0].destination.host: no service has host two.",
				"spec.http[0].route[1].destination.host: no service has host one.",
				"spec.http[1].mirror.host: no service has host three.",
				"spec.tcp[0].route[0].destination.host: no service has host four.",
				"spec.tls[0].route[0].destination.host: no service has host five.",
			},
		},
		{
			"delegates", []string{reviews,
				route("shop/r", `hosts: [reviews],
  http: [{match: [{port: 80}], delegate: {name: d}}, {match: [{port: 81}], delegate: {name: gone}}, {delegate: {name: x, namespace: data}}]`),
				route("shop/d", "http: [{match: [{port: 82}], redirect: {uri: /}}, {route: [{destination: {host: one}}]}]"),
				route("data/x", "exportTo: [.], http: [{redirect: {uri: /}}]")},
			[]string{
				"IST0101 mesh.yaml:6 VirtualService shop/r spec.http[1].delegate: there is no VirtualService shop/gone without hosts, so the route has no effect",
				"spec.http[2].delegate: VirtualService data/x is not exported to this namespace, so the route has no effect | extend its exportTo",
				"ASH0001 mesh.yaml:12 VirtualService shop/d spec.http[0]: no effect for VirtualService shop/r (mesh.yaml), because no request fulfils both this match",
				"VirtualService shop/d spec.http[1].route[0].destination.host: no service has host one.",
				"ASH0013 mesh.yaml:17 VirtualService data/x spec.hosts: no effect",
			},
		},
		{
			"unknown port", []string{reviews, to("host: reviews, port: {number: 8080}")},
			[]string{at + ".port.number: service reviews.shop.svc.cluster.local has no port 8080, so requests that are routed there fail | use one of its ports (80 http, 9090 grpc), or declare the port"},
		},
		{
			"no rule", []string{reviews, to("host: reviews, subset: v1")},
			[]string{at + ".subset: subset v1 is unknown, because no DestinationRule for host reviews.shop.svc.cluster.local applies in namespace shop, so requests that are routed there fail | " +
				"write a DestinationRule with subset v1, or leave the subset out"},
		},
		{
			"unknown subset", []string{reviews, subsets, to("host: reviews, subset: w2")},
			[]string{"IST0101 mesh.yaml:11 VirtualService shop/r spec.http[0].route[0].destination.subset: DestinationRule shop/reviews has no subset w2, so requests that are routed there fail | " +
				"use one of its subsets (v1, v2), or define the subset there"},
		},
		{
			"a rule of the root namespace for a wildcard",
			[]string{reviews, rule("istio-system/all", `host: "*.shop.svc.cluster.local", subsets: [{name: v1}]`),
				to("host: reviews, subset: v1")}, nil,
		},
		{
			"a service that is not exported", []string{service("data/db", "db.internal", "exportTo: [.]"), reviews, to("host: db.internal")},
			[]string{"service db.internal of namespace data is not exported to namespace shop, so requests that are routed there fail | extend the exportTo of the service"},
		},
		{
			"a service with a wildcard host", []string{service("shop/all", "*.example.com", ""), to("host: x.example.com")},
			[]string{"no service has host x.example.com, so requests that are routed there fail | use a host that exists"},
		},
		{"a route for another namespace", []string{
			service("data/db", "db.internal", "exportTo: [data, web]"), reviews,
			route("shop/r", "hosts: [x.example.com], exportTo: [web], http: [{route: [{destination: {host: db.internal}}]}]"),
		}, nil},
		{"a namespace of routes for others", []string{
			service("data/db", "db.internal", "exportTo: [web]"), rule("web/db",
				"host: db.internal, subsets: [{name: v1}]"),
			route("routes/r", "hosts: [x.example.com], http: [{route: [{destination: {host: db.internal, subset: v1}}]}]"),
		}, nil},
		{"a route for the namespace of its Gateway", []string{
			service("data/db", "db.internal", "exportTo: [edge]"), reviews, gateway("edge/gw", `"*"`),
			route("shop/r", "hosts: [x.example.com], gateways: [edge/gw], http: [{route: [{destination: {host: db.internal}}]}]"),
		}, nil},
	})
}

func TestBoundGateways(t *testing.T) {
	t.Parallel()
	reviews := service("shop/reviews", "reviews.internal", "")
	bound := func(name, hosts, gateways string) string {
		return route(name, "hosts: ["+hosts+"], gateways: ["+gateways+"], http: [{route: [{destination: {host: reviews.internal}}]}]")
	}
	const at = " mesh.yaml:11 VirtualService shop/r spec."
	check(t, []testCase{
		{
			"unknown Gateway", []string{reviews, gateway("edge/public", `"*"`), bound("shop/r", "x.example.com", "mesh, public, edge/publik")},
			[]string{
				"IST0101" + at + "gateways[1]: Gateway shop/public does not exist, so it does not serve these hosts | use the name of one that exists",
				"IST0101" + at + "gateways[2]: Gateway edge/publik does not exist, so it does not serve these hosts | use the name of one that exists (did you mean edge/public?), with its namespace in front",
			},
		},
		{
			"no server accepts the hosts", []string{reviews, gateway("edge/gw", `"*.example.org", "edge/*.example.com"`), bound("shop/r", "x.example.com", "edge/gw")},
			[]string{"IST0132" + at + "gateways[0]: no server of Gateway edge/gw accepts host x.example.com from namespace shop, so this VirtualService has no effect on that Gateway | " +
				"change spec.hosts, or add the host to a server of the Gateway"},
		},
		{"hosts of the Gateway's namespace", []string{reviews, gateway("edge/gw", `"./*.Example.com"`), bound("edge/r", "x.example.com", "gw")}, nil},
		{"a host that is wider than the server's", []string{reviews, gateway("edge/gw", `"shop/x.example.com"`), bound("shop/r", `"*.example.com"`, "edge/gw")}, nil},
		{"one host of two", []string{reviews, gateway("edge/gw", `"*.example.com"`), bound("shop/r", "x.example.com, y.example.org", "edge/gw")}, nil},
		{"a host for sidecars alone", []string{reviews, gateway("edge/gw", `"*.example.com"`), bound("shop/r", "x.example.com, reviews.internal", "edge/gw, mesh")}, nil},
		{"tls routes at a server that passes TLS through", []string{
			reviews, object(config.Gateway, "edge/gw",
				"selector: {app: gw}, servers: [{port: {number: 443, name: tls, protocol: HTTPS}, hosts: [x.example.com], tls: {mode: PASSTHROUGH}}]"),
			route("shop/r", "hosts: [x.example.com], gateways: [edge/gw], tls: [{match: [{sniHosts: [x.example.com]}], route: [{destination: {host: reviews.internal, port: {number: 80}}}]}]"),
		}, nil},
	})
}
