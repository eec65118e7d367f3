package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

const good = `apiVersion: networking.istio.io/v1
kind: ServiceEntry
metadata: {name: db, namespace: shop}
spec:
  hosts: [db.shop.svc.cluster.local]
  location: MESH_INTERNAL
  resolution: STATIC
  ports: [{number: 80, name: http, protocol: HTTP}]
  endpoints: [{address: 10.0.0.1}]
`

func TestValidate(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name  string
		files map[string]string
		code  int
		want  []string
	}{
		{"good", map[string]string{"a.yaml": good, "notes.txt": "x: [", ".hidden.yaml": "x: ["}, 0, []string{"1 object in 1 file: no problems"}},
		{"unknown field", map[string]string{"sub/a.yaml": strings.Replace(good, "hosts:", "hostz:", 1)}, 1, []string{"ERROR ", "sub/a.yaml:5", "hosts", "1 error, 0 warnings"}},
		// One object in two files names both.
		{"twice", map[string]string{"a.yaml": good, "b.yaml": good}, 1, []string{"b.yaml:1", "ServiceEntry shop/db", "a.yaml:1 too"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			for name, text := range tc.files {
				path := filepath.Join(dir, name)
				if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			code, out, errOut := result(t, "validate", "-f", dir)
			if code != tc.code || errOut != "" {
				t.Errorf("exit code %d, want %d; standard error %q", code, tc.code, errOut)
			}
			for _, w := range tc.want {
				if !strings.Contains(out, w) {
					t.Errorf("output %q, want %q in it", out, w)
				}
			}
		})
	}
}
