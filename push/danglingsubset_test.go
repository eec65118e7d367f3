package push_test

import (
	"testing"

	"github.com/ashore-mesh/ashore/config"
)

// A subset that no endpoint is in is told of, once there are endpoints.
func TestDanglingSubsetLabels(t *testing.T) {
	t.Parallel()
	service := func(name, endpoints string) string {
		return yamlOf(config.ServiceEntry, "shop/"+name, "hosts: ["+name+".internal], ports: [{number: 80, name: http}], resolution: STATIC, location: MESH_INTERNAL, "+endpoints)
	}
	const v1, v2 = "{address: 10.0.0.1, labels: {v: v1, app: web}}", "{address: 10.0.0.2, labels: {v: v2, app: web}}"
	web := service("web", "endpoints: ["+v1+", "+v2+"]")
	rule := func(host, labels string) string {
		return ruleOf("shop/r", `host: "`+host+`", subsets: [{name: all}, {name: some, labels: {`+labels+`}}]`)
	}
	checkDangling(t, []danglingCase{
		{"an endpoint has the label", []string{web, rule("web.internal", "v: v2")}, nil},
		{"an endpoint has both labels", []string{web, rule("web.internal", "v: v2, app: web")}, nil},
		{
			"none has the label", []string{web, rule("web.internal", "v: v3")},
			[]string{"mesh.yaml:6: DestinationRule shop/r spec.subsets[1].labels: no endpoint of web.internal has the label v: v3, so what is routed to subset some fails: " +
				"correct the labels, or give them to its endpoints, which have v: v1, v: v2"},
		},
		{
			"none has both labels", []string{web, rule("web.internal", "v: v1, app: api")},
			[]string{"no endpoint of web.internal has the labels app: api, v: v1, so what is routed to subset some fails: correct the labels, or give them to its endpoints, which have app: web, v: v1, v: v2"},
		},
		{
			"labels by another name", []string{web, rule("web.internal", "version: v1")},
			[]string{"has the label version: v1, so what is routed to subset some fails: correct the labels, or give them to its endpoints"},
		},
		{"no endpoint yet", []string{service("web", "workloadSelector: {labels: {app: web}}"), rule("web.internal", "v: v3")}, nil},
		{"a wildcard, and one service has such", []string{service("api", "endpoints: [{address: 10.0.0.3}]"), web, rule("*.internal", "v: v2")}, nil},
		{
			"a wildcard, and none has such", []string{service("api", "endpoints: [{address: 10.0.0.3}]"), web, rule("*.internal", "v: v3")},
			[]string{"no endpoint of api.internal has the label v: v3, "},
		},
	})
}
