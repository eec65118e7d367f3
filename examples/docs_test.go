package examples

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ashore-mesh/ashore/config"
	_ "github.com/ashore-mesh/ashore/xds/envoytypes" // for EnvoyFilters
)

// Every object of Istio's API that the documentation shows is valid.
func TestDocumentedObjects(t *testing.T) {
	t.Parallel()
	var files []string
	for _, pattern := range []string{"../docs/*.md", "../docs/tasks/*.md"} {
		found, err := filepath.Glob(pattern)
		if err != nil || len(found) == 0 {
			t.Fatalf("no pages %s: %v", pattern, err)
		}
		files = append(files, found...)
	}
	objects := 0
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, text := range yamlBlocks(string(data)) {
			if !strings.Contains(text, ".istio.io/") {
				continue // settings, or what is for others
			}
			result := config.Parse(file, []byte(text))
			for _, p := range result.Problems {
				t.Errorf("%v in\n%s", p, text)
			}
			objects += len(result.Objects)
		}
	}
	if objects < 15 {
		t.Errorf("%d objects were found; the documentation has more", objects)
	}
}

// yamlBlocks are the blocks of a page that are fenced as YAML.
func yamlBlocks(page string) []string {
	var out []string
	for {
		_, rest, ok := strings.Cut(page, "\n```yaml\n")
		if !ok {
			return out
		}
		block, after, _ := strings.Cut(rest, "\n```")
		out, page = append(out, block), "\n"+strings.TrimPrefix(after, "\n")
	}
}
