package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/ashore-mesh/ashore/analyze"
)

const toSubset = `apiVersion: networking.istio.io/v1
kind: VirtualService
metadata: {name: db, namespace: shop}
spec: {hosts: [db], http: [{route: [{destination: {host: HOST, subset: v1}}]}]}
`

const toMisspelled = `apiVersion: networking.istio.io/v1
kind: VirtualService
metadata: {name: db, namespace: shop}
spec:
  hosts: [db]
  http:
  - match: [{uri: {prefix: /a}}]
    route: [{destination: {host: db}}]
  - route: [{destination: {host: dv}}]
`

const denyCaller = `apiVersion: security.istio.io/v1
kind: AuthorizationPolicy
metadata: {name: no-batch, namespace: shop}
spec: {action: DENY, rules: [{from: [{source: {principals: [cluster.local/ns/data/sa/batch]}}]}]}
`

// analyze exits with 1 for errors alone: what a registry could supply is information.
func TestAnalyze(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		files map[string]string
		code  int
		want  []string
	}{
		"nothing": {map[string]string{"a.yaml": good}, 0, []string{"1 object in 1 file: nothing found"}},
		"an unknown subset": {
			map[string]string{"a.yaml": good, "b.yaml": strings.Replace(toSubset, "HOST", "db", 1)}, 1,
			[]string{"ERROR [IST0101] ", "b.yaml:4", "spec.http[0].route[0].destination.subset",
				"To do: write a DestinationRule with subset v1", "1 error, 0 warnings"},
		},
		"the line of the field": {
			map[string]string{"a.yaml": good, "b.yaml": "# a comment\n---\n" + toMisspelled}, 0,
			[]string{"WARNING [IST0101] ", "b.yaml:11\n", "spec.http[1].route[0].destination.host", "(did you mean db.shop.svc.cluster.local?)",
				"fail, unless a registry", "0 errors, 1 warning"},
		},
		"the host of a registry": {
			map[string]string{"b.yaml": strings.Replace(toSubset, "HOST", "db.service.consul", 1)}, 0,
			[]string{"INFO [IST0101]", "no service has host db.service.consul", "fail, unless a registry", "0 errors, 0 warnings, 1 note"},
		},
		"a caller that a registry may have": {
			map[string]string{"a.yaml": good, "b.yaml": denyCaller}, 0,
			[]string{"INFO [ASH0009]", "no workload has the service account data/batch", "unless a registry", "1 note"},
		},
		"an invalid object": {map[string]string{"a.yaml": strings.Replace(good, "hosts:", "hostz:", 1)}, 1, []string{"ERROR [IST0106]", "a.yaml:5"}},
		"one object twice":  {map[string]string{"a.yaml": good, "b.yaml": good}, 1, []string{"ERROR [IST0106]", "b.yaml:1", "a.yaml:1 defines it too and takes precedence"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			for name, text := range tc.files {
				if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			code, out, errOut := result(t, "analyze", "-f", dir)
			if code != tc.code || errOut != "" {
				t.Errorf("exit code %d, want %d; standard error %q", code, tc.code, errOut)
			}
			for _, w := range tc.want {
				if !strings.Contains(out, w) {
					t.Errorf("output %q, want %q in it", out, w)
				}
			}
			jsonCode, out, _ := result(t, "analyze", "-f", dir, "-o", "json")
			var list []analyze.Finding
			if err := json.Unmarshal([]byte(out), &list); err != nil || jsonCode != tc.code {
				t.Fatalf("exit code %d, want %d; JSON %q: %v", jsonCode, tc.code, out, err)
			}
			if got := slices.ContainsFunc(list,
				func(f analyze.Finding) bool { return f.IsError() }); got != (tc.code == 1) {
				t.Errorf("findings %+v with exit code %d", list, tc.code)
			}
		})
	}
	settings := filepath.Join(t.TempDir(), "ashored.yaml")
	write := func(name, text string) {
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write(settings, "state: /x\nmesh:\n  extensionProviders: [{name: files, envoyFileAccessLog: {path: /x}}]\n")
	for provider, want := range map[string]string{"files": "nothing found", "flies": `WARNING [IST0101] `} {
		file := filepath.Join(t.TempDir(), "t.yaml")
		write(file, "apiVersion: telemetry.istio.io/v1\nkind: Telemetry\nmetadata: {name: t, namespace: shop}\n"+
			"spec: {accessLogging: [{providers: [{name: "+provider+"}]}]}\n")
		if _, out, errOut := result(t, "analyze", "-f", file, "--settings", settings); !strings.Contains(out, want) ||
			strings.Contains(out, "unless") {
			t.Errorf("provider %s with settings: %s%s, want %s", provider, out, errOut, want)
		}
	}
	write(settings, "mesh:\n  defaultConfig: {discoveryAddress: istiod:15012}\n")
	objects := filepath.Join(t.TempDir(), "a.yaml")
	write(objects, good)
	code, out, errOut := result(t, "analyze", "-f", objects, "--settings", settings)
	for _, want := range []string{"WARNING ", settings + ":2", "mesh.defaultConfig.discoveryAddress", "0 errors, 1 warning"} {
		if code != 0 || !strings.Contains(out, want) {
			t.Errorf("an ignored setting: exit code %d, %s%s, want %s", code, out, errOut, want)
		}
	}
	write(settings, "mesh: {extensionProviders: 7}\n")
	if code, _, errOut := result(t, "analyze", "-f", settings, "--settings", settings); code != 2 || !strings.Contains(errOut, "--settings: ") {
		t.Errorf("wrong settings: exit code %d, %q", code, errOut)
	}
	if code, _, errOut := result(t, "analyze"); code != 2 || !strings.Contains(errOut, "-f") {
		t.Errorf("without files: exit code %d, %q", code, errOut)
	}
}
