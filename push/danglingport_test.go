package push_test

import (
	"testing"

	"github.com/ashore-mesh/ashore/config"
)

// Settings for a port that no service of the rule has are told of, since they do nothing: TLS above all.
func TestDanglingPortSettings(t *testing.T) {
	t.Parallel()
	reviews := entryOf("shop/reviews", "reviews.shop.svc.cluster.local", "")
	other := yamlOf(config.ServiceEntry, "data/reviews", "hosts: [reviews.shop.svc.cluster.local], ports: [{number: 5432, name: tcp}], resolution: STATIC, endpoints: [{address: 10.0.0.1}]")
	const random, tls = "loadBalancer: {simple: RANDOM}", "tls: {mode: SIMPLE}"
	rule := func(name, host, port, settings string) string {
		return ruleOf(name, "host: "+host+", trafficPolicy: {portLevelSettings: [{port: {number: "+port+"}, "+settings+"}]}")
	}
	checkDangling(t, []danglingCase{
		{"a port that the service has", []string{reviews, rule("shop/r", "reviews", "9090", tls)}, nil},
		{
			"TLS for a port that it does not have", []string{reviews, rule("shop/r", "reviews", "443", tls)},
			[]string{"mesh.yaml:6: DestinationRule shop/r spec.trafficPolicy.portLevelSettings[0].port.number: service reviews.shop.svc.cluster.local has no port 443, " +
				"so these settings have no effect and their TLS protects nothing: use one that it has (80 http, 9090 grpc), or declare the port"},
		},
		{
			"other settings", []string{reviews, rule("shop/r", "reviews", "443", random)},
			[]string{"has no port 443, so these settings have no effect: use"},
		},
		{
			"TLS that is turned off", []string{reviews, rule("shop/r", "reviews", "443", "tls: {mode: DISABLE}")},
			[]string{"has no port 443, so these settings have no effect: use"},
		},
		{
			"of a subset, after one that it has", []string{reviews, ruleOf("shop/r",
				"host: reviews, subsets: [{name: all}, {name: v1, trafficPolicy: {portLevelSettings: [{port: {number: 80}, "+random+"}, {port: {number: 81}, "+random+"}]}}]")},
			[]string{"DestinationRule shop/r spec.subsets[1].trafficPolicy.portLevelSettings[1].port.number: service reviews.shop.svc.cluster.local has no port 81, "},
		},
		{"a service of another namespace has it", []string{reviews, other, rule("istio-system/r", "reviews.shop.svc.cluster.local", "5432", tls)}, nil},
		{
			"a service of another namespace has it, to which nobody applies the rule", []string{reviews, other, rule("shop/r", "reviews", "5432", tls)},
			[]string{"spec.trafficPolicy.portLevelSettings[0].port.number: service reviews.shop.svc.cluster.local has no port 5432, "},
		},
		{"a wildcard, and one service has it", []string{reviews, other, rule("istio-system/r", `"*.local"`, "5432", tls)}, nil},
		{
			"a wildcard, and none has it", []string{reviews, rule("shop/r", `"*.local"`, "443", tls)},
			[]string{"none of the services that *.local covers has port 443, so these settings have no effect and their TLS protects nothing: " +
				"use a port that one of them has (reviews.shop.svc.cluster.local has 80 http, 9090 grpc), or declare the port"},
		},
	})
}
