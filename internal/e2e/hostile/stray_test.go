package hostile

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"testing"

	"github.com/ashore-mesh/ashore/internal/e2e/harness"
)

// Thousands of stray files keep no change from taking effect.
func TestStrayFiles(t *testing.T) {
	t.Parallel()
	m := harness.New(t, map[string]string{"web.yaml": host("web", "10.0.0.1")})
	stray := filepath.Join(t.TempDir(), "node_modules")
	if err := os.Mkdir(stray, 0o700); err != nil {
		t.Fatal(err)
	}
	for i := range 20_000 {
		path := filepath.Join(stray, fmt.Sprintf("%d.json", i))
		if err := os.WriteFile(path, []byte(`{"name":"left-pad","version":"1.0.0"}`), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Rename(stray, filepath.Join(m.Files, "node_modules")); err != nil {
		t.Fatal(err)
	}
	m.Write("web.yaml", host("web", "10.0.0.2"))
	printed(m, []string{"get", "serviceentry", "web", "-n", "shop", "-o", "yaml"}, "10.0.0.2")
}

// With more files than are read the last content stays, the source says why, and changes take
// effect when they are fewer.
func TestTooManyFiles(t *testing.T) {
	t.Parallel()
	m := harness.New(t, map[string]string{"shop/web.yaml": host("web", "10.0.0.1")})
	crowd := filepath.Join(t.TempDir(), "crowd")
	if err := os.Mkdir(crowd, 0o700); err != nil {
		t.Fatal(err)
	}
	for i := range 100_000 {
		if err := os.Symlink("x", filepath.Join(crowd, strconv.Itoa(i))); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Rename(crowd, filepath.Join(m.Files, "crowd")); err != nil {
		t.Fatal(err)
	}
	const text = "it has more than 100000 files and folders"
	printed(m, []string{"problems"}, text)
	printed(m, []string{"sources"}, "down", text)
	m.Write("shop/web.yaml", host("web", "10.0.0.2"))
	printed(m, []string{"get", "serviceentry", "web", "-n", "shop", "-o", "yaml"}, "10.0.0.1")
	if err := os.Rename(filepath.Join(m.Files, "crowd"), crowd); err != nil {
		t.Fatal(err)
	}
	printed(m, []string{"get", "serviceentry", "web", "-n", "shop", "-o", "yaml"}, "10.0.0.2")
	m.Write("new.yaml", host("new", "10.0.0.1"))
	printed(m, []string{"get", "serviceentry", "new", "-n", "shop", "-o", "yaml"}, "10.0.0.1")
}
