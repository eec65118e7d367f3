package push_test

import (
	"testing"

	"github.com/ashore-mesh/ashore/config"
)

// A Sidecar that no proxy gets, since another one of its namespace comes first for all that it selects, is told of.
func TestDanglingShadowedSidecars(t *testing.T) {
	t.Parallel()
	sidecar := func(name, labels string) string {
		if labels == "" {
			return yamlOf(config.Sidecar, name, `egress: [{hosts: ["./*"]}]`)
		}
		return yamlOf(config.Sidecar, name, `workloadSelector: {labels: {`+labels+`}}, egress: [{hosts: ["./*"]}]`)
	}
	checkDangling(t, []danglingCase{
		{
			"two for a namespace", []string{sidecar("shop/b", ""), sidecar("shop/a", "")},
			[]string{"mesh.yaml:1: Sidecar shop/b spec.workloadSelector: Sidecar shop/a (mesh.yaml:6) is for all of namespace shop too and comes first, by age or by name, " +
				"and a proxy has one Sidecar alone, so this one has no effect: put what both say into one of them, or give this one a workloadSelector"},
		},
		{
			"three for a namespace", []string{sidecar("shop/a", ""), sidecar("shop/b", ""), sidecar("shop/c", "")},
			[]string{"Sidecar shop/b spec.workloadSelector: Sidecar shop/a ", "Sidecar shop/c spec.workloadSelector: Sidecar shop/a "},
		},
		{
			"two of equal labels", []string{sidecar("shop/a", "app: web, v: v1"), sidecar("shop/b", "v: v1, app: web")},
			[]string{"mesh.yaml:6: Sidecar shop/b spec.workloadSelector.labels: Sidecar shop/a (mesh.yaml:1) selects all that this one does and comes first, by age or by name, " +
				"and a proxy has one Sidecar alone, so this one has no effect: put what both say into one of them, or let them select different workloads"},
		},
		{
			"the first asks for less", []string{sidecar("shop/a", "v: v1"), sidecar("shop/b", "v: v1, app: web")},
			[]string{"Sidecar shop/b spec.workloadSelector.labels: Sidecar shop/a "},
		},
		{"the first asks for more", []string{sidecar("shop/a", "v: v1, app: web"), sidecar("shop/b", "v: v1")}, nil},
		{"other labels", []string{sidecar("shop/a", "app: web"), sidecar("shop/b", "app: api"), sidecar("shop/c", "v: v1")}, nil},
		{"one for the namespace, one for some", []string{sidecar("shop/a", ""), sidecar("shop/b", "app: web")}, nil},
		{"one for each namespace", []string{sidecar("istio-system/a", ""), sidecar("shop/a", ""), sidecar("web/a", "app: web"), sidecar("shop/b", "app: web")}, nil},
	})
}
