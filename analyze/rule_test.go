package analyze_test

import (
	"strings"
	"testing"
)

func TestRules(t *testing.T) {
	t.Parallel()
	reviews := service("shop/reviews", "reviews.shop.svc.cluster.local", "")
	const random, full = "trafficPolicy: {loadBalancer: {simple: RANDOM}}", "host: reviews.shop.svc.cluster.local, "
	check(t, []testCase{
		{"wildcards", []string{reviews, rule("shop/a", `host: "*"`), rule("shop/b", `host: "*.local"`), rule("a/c", `host: "*.shop.svc.cluster.local"`)}, nil},
		{
			"no service", []string{reviews, rule("shop/r", "host: review, "+random)},
			[]string{"IST0101 mesh.yaml:6 DestinationRule shop/r spec.host: no service has host review.shop.svc.cluster.local, so the rule has no effect"},
		},
		{
			"a service that is not exported", []string{service("data/db", "db.internal", "exportTo: [.]"), rule("shop/r", "host: db.internal, exportTo: [.]")},
			[]string{"service db.internal of namespace data is not exported to namespace shop, so the rule has no effect"},
		},
		{
			"in a namespace where no client searches", []string{reviews, rule("a/r", full+"exportTo: [b]")},
			[]string{"ASH0004 mesh.yaml:6 DestinationRule a/r spec.host: no client that sees the rule and the service reviews.shop.svc.cluster.local searches for rules in namespace a, so the rule has no effect"},
		},
		{
			"another namespace's rule takes precedence", []string{reviews, rule("shop/own", full+random), rule("istio-system/mesh", full+random)},
			[]string{"ASH0004 mesh.yaml:11 DestinationRule istio-system/mesh spec.host: clients of reviews.shop.svc.cluster.local apply DestinationRule shop/own (mesh.yaml), so the rule has no effect"},
		},
		{
			"a narrower host takes precedence", []string{reviews, rule("shop/own", full+random), rule("shop/exact", `host: "reviews.shop.svc.cluster.local", exportTo: ["*"], subsets: [{name: v1}]`)},
			nil, // both are merged
		},
		{"a default for services to come", []string{reviews, rule("shop/own", full+random), rule("istio-system/wide", `host: "*.local", `+random)}, nil},
		{"of the root namespace, where routers are", []string{
			reviews, rule("shop/own", full+random), rule("istio-system/mesh", full+random), gateway("istio-system/gw",
				`"*"`),
		}, nil},
		{"of the root namespace, for those who do not see the other", []string{reviews, rule("shop/own", full+random+", exportTo: [.]"), rule("istio-system/mesh", full+random)}, nil},
		{
			"unknown port", []string{reviews, rule("shop/r", full+"trafficPolicy: {portLevelSettings: [{port: {number: 81}, tls: {mode: SIMPLE}}]}")},
			[]string{"IST0101 mesh.yaml:6 DestinationRule shop/r spec.trafficPolicy.portLevelSettings[0].port.number: no service of host reviews.shop.svc.cluster.local has port 81, " +
				"so these settings are not applied | use a port that exists (reviews.shop.svc.cluster.local has 80 http, 9090 grpc), or declare the port"},
		},
		{
			"no endpoint in a subset", []string{reviews, rule("shop/r", full+"subsets: [{name: v1, labels: {version: v1}}]")},
			[]string{"IST0173 mesh.yaml:6 DestinationRule shop/r spec.subsets[0].labels: no endpoint of reviews.shop.svc.cluster.local has the label version: v1, so requests to subset v1 fail"},
		},
		{"an endpoint in a subset", []string{
			strings.Replace(reviews, "{address: 10.0.0.1}", "{address: 10.0.0.1, labels: {version: v1}}",
				1), rule("shop/r", full+"subsets: [{name: v1, labels: {version: v1}}]"),
		}, nil},
	})
}

func TestRuleConflicts(t *testing.T) {
	t.Parallel()
	web := service("shop/web", "web.internal", "")
	const random, full = "trafficPolicy: {loadBalancer: {simple: RANDOM}}", "host: web.internal, "
	check(t, []testCase{
		{"different parts", []string{web, rule("shop/a", full+random), rule("shop/b", full+"subsets: [{name: v1}]")}, nil},
		{
			"one part twice", []string{web, rule("shop/a", full+random+", subsets: [{name: v1}]"), rule("shop/b", full+random+", subsets: [{name: v2}, {name: v1}]")},
			[]string{
				"ASH0003 mesh.yaml:11 DestinationRule shop/b spec.subsets[1]: has no effect: DestinationRule shop/a (mesh.yaml) for host web.internal has a subset v1 too and takes precedence because it is older or sorts first",
				"ASH0003 mesh.yaml:11 DestinationRule shop/b spec.trafficPolicy: has no effect: DestinationRule shop/a (mesh.yaml) for host web.internal has a trafficPolicy too and takes precedence",
			},
		},
		{"for different clients", []string{web, rule("shop/a", full+random+", exportTo: [.]"), rule("shop/b", full+random)}, nil},
	})
}
