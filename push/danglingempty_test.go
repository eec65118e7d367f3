package push_test

import (
	"strings"
	"testing"

	"github.com/ashore-mesh/ashore/config"
	"github.com/ashore-mesh/ashore/push"
	"github.com/ashore-mesh/ashore/registry"
)

const emptyEntry = "hosts: [web.shop.internal], ports: [{number: 80, name: http}], location: MESH_INTERNAL, resolution: "

// A service that is declared without endpoints, and has none, is told of.
func TestDanglingEmpty(t *testing.T) {
	t.Parallel()
	entry := func(more string) string { return yamlOf(config.ServiceEntry, "shop/web", emptyEntry+more) }
	relayed := strings.ReplaceAll(entry("STATIC"), "name: web,", "name: registry-web.shop.internal, annotations: {ashore.io/source: consul},")
	checkDangling(t, []danglingCase{
		{"none", []string{entry("STATIC")}, []string{"mesh.yaml:1: ServiceEntry shop/web spec: web.shop.internal has no endpoints, and no registry has any of it"}},
		{"some", []string{entry("STATIC, endpoints: [{address: 10.0.0.1}]")}, nil},
		{"workloads that may come", []string{entry("STATIC, workloadSelector: {labels: {app: web}}")}, nil},
		{"found by DNS", []string{entry("DNS")}, nil},
		{"what another control plane's registry knows", []string{relayed}, nil},
	})
}

// Endpoints that a registry has of it will do.
func TestDanglingEmptyOfRegistry(t *testing.T) {
	t.Parallel()
	in := read(t, yamlOf(config.ServiceEntry, "shop/web", emptyEntry+"STATIC"))
	k := registry.Key{Host: "web.shop.internal", Namespace: "shop"}
	in.Endpoints = in.Endpoints.With(k, &registry.EndpointList{Items: []registry.Endpoint{{Address: "10.0.0.1"}}})
	if got := push.Build(nil, in).Dangling(); len(got) > 0 {
		t.Errorf("got %v", got)
	}
	in.Endpoints = in.Endpoints.Without(k)
	if got := push.Build(nil, in).Dangling(); len(got) != 1 {
		t.Errorf("without them: %v", got)
	}
}
