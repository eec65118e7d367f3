package webhook

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/tools/txtar"

	"github.com/ashore-mesh/ashore/config"
	"github.com/ashore-mesh/ashore/internal/e2e/harness"
)

// perFile is the number of samples in one file.
const perFile = 25

// files are what config's own tests read, put together into files of many objects.
func files(t *testing.T) map[string]string {
	t.Helper()
	const folder = "../../../config/testdata"
	out := map[string]string{"empty.yaml": "", "nothing.yaml": "# nothing\n", "zeros.yaml": "\x00\x00",
		"bad.json": "{a: 1}"}
	n := 0
	add := func(name string, kind config.Kind, spec string) {
		info, ok := config.Info(kind)
		if !ok {
			t.Fatalf("%s: there is no kind %q", name, kind)
		}
		file := fmt.Sprintf("%s-%d.yaml", name, n/perFile)
		out[file] += fmt.Sprintf("---\napiVersion: %s\nkind: %s\nmetadata: {name: web-%d, namespace: shop}\nspec:%s",
			info.APIVersion(), kind, n, spec)
		n++
	}
	for _, path := range glob(t, folder+"/good/*") {
		out[filepath.Base(path)] = text(t, path)
	}
	for _, path := range glob(t, folder+"/problems/*.txtar") {
		kind := strings.TrimSuffix(filepath.Base(path), ".txtar")
		for _, f := range txtar.Parse([]byte(text(t, path))).Files {
			switch {
			case strings.HasSuffix(f.Name, ".problems"):
			case kind == "file":
				out["file-"+strings.ReplaceAll(f.Name, "/", "-")] = string(f.Data)
			default:
				add(kind, config.Kind(kind), "\n"+string(f.Data))
			}
		}
	}
	for _, path := range glob(t, folder+"/odd/*.txt") {
		for line := range strings.Lines(text(t, path)) {
			kind, spec, _ := strings.Cut(line, " ")
			add(filepath.Base(path), config.Kind(kind), " "+spec)
		}
	}
	if n < 900 {
		t.Fatalf("only %d samples", n)
	}
	return out
}

func glob(t *testing.T, pattern string) []string {
	t.Helper()
	paths, err := filepath.Glob(pattern)
	if err != nil || len(paths) == 0 {
		t.Fatalf("%s: nothing is there (%v)", pattern, err)
	}
	return paths
}

func text(t *testing.T, path string) string {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

// ashored over HTTPS and ashorectl offline give the same answer, byte for byte, and mean the same
// by it.
func TestSameAsOffline(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	dir, c := t.TempDir(), w.client("")
	for name, content := range files(t) {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		out, exit, err := harness.Command("ashorectl", "validate", "-f", path, "-o", "json")
		if err != nil {
			t.Fatal(err)
		}
		a, err := w.post(c, "/v1/validate?file="+path, "", strings.NewReader(content))
		if err != nil {
			t.Fatal(err)
		}
		if a.body != out {
			t.Errorf("%s: ashored says\n%s\nashorectl says\n%s", name, a.body, out)
		}
		if want := map[int]int{0: http.StatusOK, 1: http.StatusUnprocessableEntity}[exit]; a.code != want {
			t.Errorf("%s: ashored answers %d, and ashorectl ends with %d", name, a.code, exit)
		}
	}
}
