package config

import (
	"fmt"
	"slices"
	"strings"
	"testing"
)

// One of Ashore's annotations without effect is a warning. It does not break its object.
func TestAnnotations(t *testing.T) {
	t.Parallel()
	const entry, group = "WorkloadEntry", "WorkloadGroup"
	const at = "metadata.annotations[ashore.io/"
	for name, tc := range map[string]struct{ kind, meta, spec, want string }{
		"known":            {group, `ashore.io/allow-addresses: 10.0.0.0/8`, `template: {}`, ""},
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

// Only an AuthorizationPolicy can be tried. Another policy would be enforced.
func TestDryRun(t *testing.T) {
	t.Parallel()
	for kind, want := range map[string]int{"AuthorizationPolicy": 1, "PeerAuthentication": 0, "RequestAuthentication": 0} {
		r := Parse("f.yaml", []byte("apiVersion: security.istio.io/v1\nkind: "+kind+
			"\nmetadata: {name: web, annotations: {istio.io/dry-run: \"true\"}}\nspec: {}\n"))
		if len(r.Objects) != want {
			t.Errorf("%s: got %d objects, want %d: %v", kind, len(r.Objects), want, r.Problems)
		}
	}
}

// Istio's annotations of a WorkloadGroup are checked where they are written, and those of its
// workloads take precedence.
func TestGroupAnnotations(t *testing.T) {
	t.Parallel()
	const at = "metadata.annotations["
	for name, tc := range map[string]struct{ meta, workloads, want, problem string }{
		"none":    {``, ``, ``, ""},
		"a port":  {`prometheus.io/port: "9100"`, ``, `9100/metrics`, ""},
		"a path":  {`prometheus.io/scrape: "true", prometheus.io/path: /x`, ``, `80/x`, ""},
		"not":     {`prometheus.io/port: "9100", prometheus.io/scrape: "false"`, ``, ``, ""},
		"of both": {`prometheus.io/port: "9100"`, `prometheus.io/port: "9200"`, `9200/metrics`, ""},
		"no port": {`prometheus.io/port: web`, ``, ``, at + `prometheus.io/port]: a port is a number from 1 to 65535, not "web"`},
		"the agent's port": {`prometheus.io/port: "15020"`, ``, ``, at + `prometheus.io/port]: port 15020 is for the agent's ` +
			`health checks and metrics: write the port of the application's metrics`},
		"no path":   {`prometheus.io/path: x`, ``, ``, at + `prometheus.io/path]: a path begins with /, "x" does not`},
		"no scrape": {``, `prometheus.io/scrape: "on"`, ``, "spec." + at + `prometheus.io/scrape]: "on" is neither "true" nor "false"`},
		"statistics": {`proxy.istio.io/config: "{proxyStatsMatcher: {inclusionPrefixes: [a.], inclusionRegexps: [b.*]}}"`, ``,
			`[a.] [b.*]`, ""},
		"no expression": {`proxy.istio.io/config: "{proxyStatsMatcher: {inclusionRegexps: [\"(\"]}}"`, ``, ``, at +
			"proxy.istio.io/config].proxyStatsMatcher.inclusionRegexps[0]: not a regular expression of RE2's syntax: missing closing ): `(`"},
		"misspelt": {`proxy.istio.io/config: "{proxyStatsMatchers: {}}"`, ``, ``, at + `proxy.istio.io/config].proxyStatsMatchers: ` +
			`unknown field "proxyStatsMatchers", did you mean "proxyStatsMatcher"?`},
		"no YAML": {`proxy.istio.io/config: "{"`, ``, ``, at + `proxy.istio.io/config]: `},
		"another field": {`proxy.istio.io/config: "{concurrency: 2}"`, ``, ``, at + `proxy.istio.io/config].concurrency: ` +
			`not supported yet, this is a setting of the agent: remove it`},
	} {
		r := Parse("f.yaml", []byte("apiVersion: networking.istio.io/v1\nkind: WorkloadGroup\nmetadata: {name: web, namespace: shop, "+
			"annotations: {"+tc.meta+"}}\nspec: {metadata: {annotations: {"+tc.workloads+"}}, template: {}}\n"))
		problem := ""
		for _, p := range r.Problems {
			problem += p.Field + ": " + p.Text
		}
		if problem != tc.problem && (tc.problem == "" || name != "no YAML" || !strings.HasPrefix(problem, tc.problem)) {
			t.Errorf("%s: problem %q, want %q", name, problem, tc.problem)
		}
		for _, o := range r.Objects {
			m, got := GroupMetrics(o)
			if m != nil {
				got += fmt.Sprint(m.InclusionPrefixes, m.InclusionRegexps)
			}
			if got != tc.want {
				t.Errorf("%s: got %q, want %q", name, got, tc.want)
			}
		}
	}
}
