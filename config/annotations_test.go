package config

import (
	"slices"
	"testing"
)

// One of Ashore's annotations without effect is a warning. It does not break its object.
func TestAnnotations(t *testing.T) {
	t.Parallel()
	const entry, group = "WorkloadEntry", "WorkloadGroup"
	const at = "metadata.annotations[ashore.io/"
	for name, tc := range map[string]struct{ kind, meta, spec, want string }{
		"known":            {group, `ashore.io/allow-addresses: 10.0.0.0/8`, `template: {}`, ""},
		"a unit":           {group, `ashore.io/probe-unit: my-app@1.service`, `template: {}`, ""},
		"written by us":    {entry, `ashore.io/health: healthy`, `address: 10.0.0.1`, ""},
		"of somebody else": {entry, `example.io/allow-adresses: x`, `address: 10.0.0.1`, ""},
		"misspelt": {group, `ashore.io/allow-adresses: 10.0.0.0/8`, `template: {}`,
			at + `allow-adresses]: unknown annotation, without effect, did you mean "ashore.io/allow-addresses"?`},
		"unlike any": {group, `ashore.io/x: y`, `template: {}`, at + `x]: unknown annotation, without effect: remove it`},
		"another kind": {entry, `ashore.io/allow-addresses: 10.0.0.0/8`, `address: 10.0.0.1`,
			at + `allow-addresses]: this annotation has no effect on a WorkloadEntry, only on a WorkloadGroup: remove it`},
		"misspelt for the workloads": {group, `a: b`, `metadata: {annotations: {ashore.io/allow-adresses: x}}, template: {}`,
			"spec." + at + `allow-adresses]: unknown annotation, without effect, did you mean "ashore.io/allow-addresses"?`},
	} {
		r := Parse("f.yaml", []byte("apiVersion: networking.istio.io/v1\nkind: "+tc.kind+
			"\nmetadata: {name: web, namespace: shop, annotations: {"+tc.meta+"}}\nspec: {"+tc.spec+"}\n"))
		var got []string
		for _, p := range r.Problems {
			got = append(got, string(p.Severity)+" "+p.Field+": "+p.Text)
		}
		var want []string
		if tc.want != "" {
			want = []string{"warning " + tc.want}
		}
		if !slices.Equal(got, want) || len(r.Objects) != 1 {
			t.Errorf("%s: got %q and %d objects, want %q and 1", name, got, len(r.Objects), want)
		}
	}
}
