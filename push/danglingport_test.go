package push_test

import (
	"strings"
	"testing"

	"github.com/ashore-mesh/ashore/config"
	"github.com/ashore-mesh/ashore/internal/feed"
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
