package push_test

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	networking "istio.io/api/networking/v1alpha3"

	"github.com/ashore-mesh/ashore/config"
	"github.com/ashore-mesh/ashore/internal/feed"
	"github.com/ashore-mesh/ashore/internal/goldentest"
	"github.com/ashore-mesh/ashore/push"
)

// danglingCase is what a mesh of some documents is warned of.
type danglingCase struct {
	name      string
	documents []string
	want      []string // a part of each warning
}

// checkDangling runs cases: every warning has its place and says what is wanted.
func checkDangling(t *testing.T, cases []danglingCase) {
	t.Helper()
	for _, tc := range cases {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			got := push.Build(nil, read(t, tc.documents...)).Dangling()
			if len(got) != len(tc.want) {
				t.Fatalf("got %d, want %d:\n%v", len(got), len(tc.want), got)
			}
			for i, p := range got {
				if !strings.Contains(p.String(), tc.want[i]) {
					t.Errorf("got  %v\nwant %s", p, tc.want[i])
				}
				if p.Severity != feed.Warning || p.Line == 0 || p.Field == "" {
					t.Errorf("%+v, want a warning with line and field", p)
				}
			}
		})
	}
}

// yamlOf is a document of one kind, "namespace/name", with a spec in YAML's flow style.
func yamlOf(kind config.Kind, name, spec string) string {
	namespace, name, _ := strings.Cut(name, "/")
	return fmt.Sprintf("apiVersion: networking.istio.io/v1\nkind: %s\nmetadata: {name: %s, namespace: %s}\nspec: {%s}\n---\n", kind, name, namespace, spec)
}

func entryOf(name, host, more string) string {
	return yamlOf(config.ServiceEntry, name, fmt.Sprintf("hosts: [%q], ports: [{number: 80, name: http}, {number: 9090, name: grpc}], resolution: STATIC, location: MESH_INTERNAL, endpoints: [{address: 10.0.0.1}], %s", host, more))
}

func routeOf(name, spec string) string { return yamlOf(config.VirtualService, name, spec) }

func ruleOf(name, spec string) string { return yamlOf(config.DestinationRule, name, spec) }

func gatewayOf(name, hosts string) string {
	return yamlOf(config.Gateway, name, "selector: {app: gw}, servers: [{port: {number: 80, name: http, protocol: HTTP}, hosts: ["+hosts+"]}]")
}

// read makes the inputs of a file named mesh.yaml. Nothing may be wrong with it by itself.
func read(t *testing.T, documents ...string) push.Inputs {
	t.Helper()
	r := config.Parse("mesh.yaml", []byte(strings.Join(documents, "")))
	for _, p := range r.Problems {
		t.Errorf("%v", p)
	}
	return goldentest.Inputs(t, r.Objects, goldentest.Counting{})
}

// A reference that leads nowhere is told of, with the object's place, the field and what to do; one that leads
// somewhere for those that it is for is not.
func TestDangling(t *testing.T) {
	t.Parallel()
	reviews := entryOf("shop/reviews", "reviews.shop.svc.cluster.local", "")
	subsets := ruleOf("shop/reviews", "host: reviews, subsets: [{name: v1}, {name: v2}]")
	to := func(destination string) string {
		return routeOf("shop/r", "hosts: [reviews], http: [{route: [{destination: {"+destination+"}}]}]")
	}
	bound := func(name, host, gateways string) string {
		return routeOf(name, "hosts: ["+host+"], gateways: ["+gateways+"], http: [{route: [{destination: {host: reviews.shop.svc.cluster.local}}]}]")
	}
	const fails = "so what is routed there fails: "
	checkDangling(t, []danglingCase{
		{"all is well", []string{reviews, subsets, to("host: reviews, port: {number: 9090}, subset: v2")}, nil},
		{
			"no such host, spelled alike", []string{reviews, to("host: reviws")},
			[]string{"mesh.yaml:6: VirtualService shop/r spec.http[0].route[0].destination.host: no service has host reviws.shop.svc.cluster.local, " + fails +
				"write one that exists (near: reviews.shop.svc.cluster.local), or declare the service"},
		},
		{
			"no such host, in another namespace", []string{
				reviews, entryOf("b/reviews", "reviews.b.svc.cluster.local", ""), routeOf("a/r", "hosts: [x.example.com], http: [{route: [{destination: {host: reviews}}]}]"),
			},
			[]string{"mesh.yaml:11: VirtualService a/r spec.http[0].route[0].destination.host: no service has host reviews.a.svc.cluster.local, " + fails +
				"write one that exists (near: reviews.b.svc.cluster.local, reviews.shop.svc.cluster.local), or declare the service"},
		},
		{
			"a name with a dot is a full one", []string{reviews, to("host: reviews.shop")},
			[]string{"mesh.yaml:6: VirtualService shop/r spec.http[0].route[0].destination.host: no service has host reviews.shop, " + fails +
				"write one that exists (near: reviews.shop.svc.cluster.local), or declare the service"},
		},
		{
			"nothing near", []string{to("host: reviews")},
			[]string{"mesh.yaml:1: VirtualService shop/r spec.http[0].route[0].destination.host: no service has host reviews.shop.svc.cluster.local, " + fails +
				"write one that exists, or declare the service"},
		},
		{
			"a wildcard covers it, and routes need the host itself", []string{
				yamlOf(config.ServiceEntry, "shop/wild", `hosts: ["*.example.com"], ports: [{number: 80, name: http}], resolution: NONE`), to("host: api.example.com"),
			},
			[]string{"mesh.yaml:6: VirtualService shop/r spec.http[0].route[0].destination.host: no service has host api.example.com itself, only *.example.com covers it, " + fails +
				"declare a service of exactly this host"},
		},
		{
			"every place", []string{reviews, routeOf("shop/r", `hosts: [reviews],
  http: [{match: [{uri: {prefix: /a}}], route: [{destination: {host: reviews}, weight: 50}, {destination: {host: one}, weight: 50}], mirrors: [{destination: {host: two}, percentage: {value: 1}}]},
    {route: [{destination: {host: reviews}}], mirror: {host: three}}],
  tcp: [{route: [{destination: {host: four}}]}],
  tls: [{match: [{sniHosts: [reviews]}], route: [{destination: {host: five}}]}]`)},
			[]string{
				"spec.http[0].route[1].destination.host: no service has host one.",
				"spec.http[0].mirrors[0].destination.host: no service has host two.",
				"spec.http[1].mirror.host: no service has host three.",
				"spec.tcp[0].route[0].destination.host: no service has host four.",
				"spec.tls[0].route[0].destination.host: no service has host five.",
			},
		},
		{
			"no such port", []string{reviews, to("host: reviews, port: {number: 8080}")},
			[]string{"mesh.yaml:6: VirtualService shop/r spec.http[0].route[0].destination.port.number: service reviews.shop.svc.cluster.local has no port 8080, " + fails +
				"use one that it has (80 http, 9090 grpc), or declare the port"},
		},
		{
			"the port of another namespace's service of that host", []string{
				yamlOf(config.ServiceEntry, "data/db", "hosts: [db.internal], ports: [{number: 5432, name: tcp}], resolution: STATIC, endpoints: [{address: 10.0.0.1}]"),
				entryOf("shop/db", "db.internal", ""), to("host: db.internal, port: {number: 5432}"),
			},
			[]string{"service db.internal has no port 5432, " + fails + "use one that it has (80 http, 9090 grpc), or declare the port"},
		},
		{
			"no rule", []string{reviews, to("host: reviews, subset: v1")},
			[]string{"mesh.yaml:6: VirtualService shop/r spec.http[0].route[0].destination.subset: no DestinationRule for host reviews.shop.svc.cluster.local holds in namespace shop, " +
				"and only such a rule has subsets, " + fails + "write one with subset v1, or leave the subset out"},
		},
		{
			"no such subset", []string{reviews, subsets, to("host: reviews, subset: w2")},
			[]string{"mesh.yaml:11: VirtualService shop/r spec.http[0].route[0].destination.subset: DestinationRule shop/reviews has no subset w2, " + fails +
				"use one that it has (v2, v1), or define it there"},
		},
		{
			"a rule without subsets", []string{reviews, ruleOf("shop/reviews", "host: reviews"), to("host: reviews, subset: v1")},
			[]string{"DestinationRule shop/reviews has no subset v1, " + fails + "define it there"},
		},
		{"a rule of the root namespace for a wildcard", []string{
			reviews, ruleOf("istio-system/all", `host: "*.shop.svc.cluster.local", subsets: [{name: v1}]`), to("host: reviews, subset: v1"),
		}, nil},
		{
			"a rule of a third namespace holds for nobody else", []string{
				reviews, ruleOf("a/reviews", "host: reviews.shop.svc.cluster.local, subsets: [{name: v1}]"), to("host: reviews, subset: v1"),
			},
			[]string{"no DestinationRule for host reviews.shop.svc.cluster.local holds in namespace shop, "},
		},
		{
			"a service that is not exported", []string{
				entryOf("data/db", "db.internal", "exportTo: [.]"), reviews, to("host: db.internal"),
				routeOf("data/own", "hosts: [x.example.com], http: [{route: [{destination: {host: db.internal}}]}]"),
			},
			[]string{"mesh.yaml:11: VirtualService shop/r spec.http[0].route[0].destination.host: db.internal of namespace data is not exported to namespace shop, " + fails +
				"extend the exportTo of the service"},
		},
		{"exported to where the route is too", []string{
			entryOf("data/db", "db.internal", "exportTo: [data, web]"), reviews,
			routeOf("shop/r", "hosts: [x.example.com], exportTo: [web], http: [{route: [{destination: {host: db.internal}}]}]"),
		}, nil},
		{"a namespace of routes for others", []string{
			entryOf("data/db", "db.internal", "exportTo: [web]"), ruleOf("web/db", "host: db.internal, subsets: [{name: v1}]"),
			routeOf("routes/r", "hosts: [x.example.com], http: [{route: [{destination: {host: db.internal, subset: v1}}]}]"),
		}, nil},
		{"a route for the router's namespace", []string{
			entryOf("data/db", "db.internal", "exportTo: [edge]"), reviews, gatewayOf("edge/gw", `"*"`),
			routeOf("shop/r", "hosts: [x.example.com], gateways: [edge/gw], http: [{route: [{destination: {host: db.internal}}]}]"),
		}, nil},

		{
			"no such gateway", []string{reviews, gatewayOf("edge/public", `"*"`), bound("shop/r", "x.example.com", "mesh, public, edge/publik")},
			[]string{
				"mesh.yaml:11: VirtualService shop/r spec.gateways[1]: there is no Gateway shop/public, so the hosts are not served there: " +
					"write the name of one that exists (near: edge/public), with its namespace before it, or declare it",
				"mesh.yaml:11: VirtualService shop/r spec.gateways[2]: there is no Gateway edge/publik, so the hosts are not served there: " +
					"write the name of one that exists (near: edge/public), with its namespace before it, or declare it",
			},
		},
		{
			"hosts that no server admits", []string{reviews, gatewayOf("edge/gw", `"*.example.org", "edge/*.example.com"`), bound("shop/r", "x.example.com", "edge/gw")},
			[]string{"mesh.yaml:11: VirtualService shop/r spec.gateways[0]: no server of Gateway edge/gw admits x.example.com from namespace shop, so nothing is served there: " +
				"it admits *.example.org, edge/*.example.com; correct spec.hosts, or add the host to one of its servers"},
		},
		{"hosts of the gateway's own namespace", []string{reviews, gatewayOf("edge/gw", `"./*.example.com"`), bound("edge/r", "x.example.com", "gw")}, nil},
		{"a host that is wider than the server's", []string{reviews, gatewayOf("edge/gw", `"shop/x.example.com"`), bound("shop/r", `"*.example.com"`, "edge/gw")}, nil},
		{
			"one host of two", []string{reviews, gatewayOf("edge/gw", `"*.example.com"`), bound("shop/r", "x.example.com, y.example.org", "edge/gw")},
			[]string{"mesh.yaml:11: VirtualService shop/r spec.hosts[1]: no server of edge/gw admits y.example.org from namespace shop, so it is not served: " +
				"correct the host, or add it to one of the servers"},
		},
		{"one host at each of two gateways", []string{
			reviews, gatewayOf("edge/gw", `"*.example.com"`), gatewayOf("edge/other", `"*.example.org"`), bound("shop/r", "x.example.com, y.example.org", "edge/gw, edge/other"),
		}, nil},
		{"a host for sidecars alone", []string{reviews, gatewayOf("edge/gw", `"*.example.com"`), bound("shop/r", "x.example.com, reviews", "edge/gw, mesh")}, nil},

		{
			"a rule for no service", []string{reviews, ruleOf("shop/r", "host: review, trafficPolicy: {loadBalancer: {simple: RANDOM}}")},
			[]string{"mesh.yaml:6: DestinationRule shop/r spec.host: no service has host review.shop.svc.cluster.local, so the rule has no effect: " +
				"write one that exists (near: reviews.shop.svc.cluster.local), or declare the service"},
		},
		{
			"a rule with TLS for no service", []string{reviews, ruleOf("shop/r", `host: "*.example.com", subsets: [{name: v1, labels: {v: v1}, trafficPolicy: {portLevelSettings: [{port: {number: 80}, tls: {mode: SIMPLE}}]}}]`)},
			[]string{"mesh.yaml:6: DestinationRule shop/r spec.host: no service has host *.example.com, so the rule has no effect and its TLS settings protect nothing: " +
				"write one that exists, or declare the service"},
		},
		{
			"a rule that turns TLS off", []string{ruleOf("shop/r", "host: x, trafficPolicy: {tls: {mode: DISABLE}}")},
			[]string{"so the rule has no effect: "},
		},
		{"rules for wildcards", []string{
			reviews, ruleOf("shop/a", `host: "*"`), ruleOf("shop/b", `host: "*.local"`), ruleOf("a/c", `host: "*.shop.svc.cluster.local"`),
		}, nil},
		{
			"a rule for a service that is not exported", []string{entryOf("data/db", "db.internal", "exportTo: [.]"), ruleOf("shop/r", "host: db.internal, exportTo: [.]")},
			[]string{"db.internal of namespace data is not exported to namespace shop, so the rule has no effect: extend the exportTo of the service"},
		},
		{
			"a rule where nobody looks", []string{reviews, ruleOf("a/r", "host: reviews.shop.svc.cluster.local, exportTo: [b]")},
			[]string{"clients look for rules in their own namespace, in that of the service (shop) and in the root namespace (istio-system), and those that see this one, " +
				"of namespace b, find it in none of the three, so the rule has no effect: move it to one of them"},
		},
	})
}

// What is for nobody leads nobody astray, and capitals make no difference to Gateways.
func TestDanglingByHand(t *testing.T) {
	t.Parallel()
	e := newEditor()
	e.service("shop", "web.internal")
	to := func(host string) []*networking.HTTPRoute {
		return []*networking.HTTPRoute{{Route: []*networking.HTTPRouteDestination{{Destination: &networking.Destination{Host: host}}}}}
	}
	e.put(config.VirtualService, "shop", "nobody", &networking.VirtualService{Hosts: []string{"x"}, ExportTo: []string{"~"}, Gateways: []string{"none"}, Http: to("nothing")})
	e.put(config.DestinationRule, "shop", "nobody", &networking.DestinationRule{Host: "x", ExportTo: []string{"~"}})
	e.put(config.Gateway, "shop", "gw", &networking.Gateway{Servers: []*networking.Server{{Port: &networking.Port{Number: 80, Protocol: "HTTP"}, Hosts: []string{"./X.example.com"}}}})
	e.put(config.VirtualService, "shop", "capitals", &networking.VirtualService{Hosts: []string{"x.EXAMPLE.com"}, Gateways: []string{"gw"}, Http: to("web.internal")})
	if got := push.Build(nil, e.in).Dangling(); len(got) > 0 {
		t.Errorf("got %v, want nothing", got)
	}
}

// Long lists are cut off.
func TestDanglingIsShort(t *testing.T) {
	t.Parallel()
	var documents, subsets []string
	for i := range 9 {
		documents = append(documents, entryOf(fmt.Sprintf("n%d/s", i), fmt.Sprintf("reviews.n%d.internal", i), ""))
		subsets = append(subsets, fmt.Sprintf("{name: s%d}", i))
	}
	documents = append(documents, ruleOf("n1/r", "host: reviews.n1.internal, subsets: ["+strings.Join(subsets, ", ")+"]"),
		routeOf("n1/a", "hosts: [x.example.com], http: [{route: [{destination: {host: reviews}}]}]"),
		routeOf("n1/b", "hosts: [x.example.com], http: [{route: [{destination: {host: reviews.n1.internal, subset: other}}]}]"))
	got := push.Build(nil, read(t, documents...)).Dangling()
	if len(got) != 2 {
		t.Fatalf("got %v, want two", got)
	}
	for i, want := range []string{"(near: reviews.n0.internal, reviews.n1.internal, reviews.n2.internal)", "(s0, s1, s2, s3, s4 and 4 more)"} {
		if !strings.Contains(got[i].Text, want) {
			t.Errorf("got %s, want %s", got[i].Text, want)
		}
	}
}

// An object that has moved in its file is told of where it stands now, and one that was mended no more.
func TestDanglingFollows(t *testing.T) {
	t.Parallel()
	route := routeOf("shop/r", "hosts: [x.example.com], http: [{route: [{destination: {host: db.internal}}]}]")
	c := push.Build(nil, read(t, route))
	for _, step := range []struct {
		documents []string
		want      []int // lines
	}{
		{[]string{route}, []int{1}},
		{[]string{"# moved\n", route}, []int{2}},
		{[]string{route, entryOf("shop/db", "db.internal", "")}, nil},
		{[]string{route}, []int{1}},
	} {
		c = push.Build(c, read(t, step.documents...))
		var lines []int
		for _, p := range c.Dangling() {
			lines = append(lines, p.Line)
		}
		if d := cmp.Diff(step.want, lines); d != "" {
			t.Errorf("%q (-want +got):\n%s", step.documents, d)
		}
	}
}

// What a sidecar finds is what a VirtualService of its namespace is told to find, host by host: of random meshes
// without Sidecars, which narrow the view.
func TestDanglingAgreesWithScopes(t *testing.T) {
	t.Parallel()
	for seed := range uint64(200) {
		random := rand.New(rand.NewPCG(seed, 1))
		e := newEditor()
		for range 30 {
			if what := byte(random.IntN(6)); what != 4 {
				e.edit(what, byte(random.IntN(256)), byte(random.IntN(256)))
			}
		}
		for k := range e.in.Objects.All() {
			if k.Kind == config.VirtualService {
				e.remove(k.Kind, k.Namespace, k.Name)
			}
		}
		for _, ns := range namespaces {
			vs := &networking.VirtualService{Hosts: []string{"probe.example.com"}, ExportTo: []string{"."}, Http: []*networking.HTTPRoute{{}}}
			for _, h := range hosts {
				for n := range 6 {
					vs.Http[0].Route = append(vs.Http[0].Route, &networking.HTTPRouteDestination{Destination: &networking.Destination{Host: h, Subset: fmt.Sprint("v", n)}})
				}
			}
			e.put(config.VirtualService, ns, "probe", vs)
		}
		c := push.Build(nil, e.in)
		told := map[string]bool{}
		for _, p := range c.Dangling() {
			told[p.Object+" "+p.Field] = true
		}
		for _, ns := range namespaces {
			destinations := c.Scope(c.Classify(node(ns, "10.0.0.200"))).Destinations
			for i, h := range hosts {
				for n := range 6 {
					at := fmt.Sprintf("VirtualService %s/probe spec.http[0].route[%d].destination", ns, i*6+n)
					d, found := destinations.Get(h)
					subset := found && d.Rule != nil && hasSubset(d.Rule, fmt.Sprint("v", n))
					if told[at+".host"] == found || told[at+".subset"] == (subset || !found) {
						t.Fatalf("seed %d: %s: the sidecar finds host %v and subset %v of %s; told of host %v, subset %v", seed, at, found, subset, h, told[at+".host"], told[at+".subset"])
					}
				}
			}
		}
	}
}

func hasSubset(r *push.DestinationRule, name string) bool {
	for _, s := range r.Spec.Subsets {
		if s.Name == name {
			return true
		}
	}
	return false
}

// BenchmarkDangling looks through a mesh in which one route of ten leads nowhere.
func BenchmarkDangling(b *testing.B) {
	for _, n := range []int{1000, 10000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			e := newEditor()
			for i := range n {
				host := fmt.Sprintf("service-%05d.shop.svc.cluster.local", i)
				e.service("shop", host)
				to := host
				if i%10 == 0 {
					to = "x" + host
				}
				e.put(config.VirtualService, "shop", fmt.Sprint(i), &networking.VirtualService{Hosts: []string{host}, Http: []*networking.HTTPRoute{{
					Route: []*networking.HTTPRouteDestination{{Destination: &networking.Destination{Host: to}}},
				}}})
			}
			c := push.Build(nil, e.in)
			b.ReportAllocs()
			for b.Loop() {
				if got := len(c.Dangling()); got != n/10 {
					b.Fatalf("%d, want %d", got, n/10)
				}
			}
		})
	}
}
