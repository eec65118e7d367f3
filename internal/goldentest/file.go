package goldentest

import (
	"errors"
	"flag"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.yaml.in/yaml/v3"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
)

// Update reports whether the test runs with -update, which rewrites golden files.
func Update() bool {
	f := flag.Lookup("update")
	return f != nil && f.Value.String() == "true"
}

// Compare fails the test if the file at path differs from got. With -update it writes the file.
func Compare(t testing.TB, path, got string) {
	t.Helper()
	if Update() {
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		t.Fatalf("%s is missing: \"make golden\" writes it", path)
	} else if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("%s differs (-want +got; \"make golden\" rewrites it):\n%s", path, diff)
	}
}

// Element returns a message as an element of a YAML list, with the names of its JSON form. Of the
// loggers of statistics, which are the same everywhere, it has the names alone.
func Element(t testing.TB, m proto.Message) string {
	t.Helper()
	text, err := protojson.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	var value any
	if err := yaml.Unmarshal(text, &value); err != nil {
		t.Fatal(err)
	}
	shortenStatistics(value)
	var b strings.Builder
	enc := yaml.NewEncoder(&b)
	enc.SetIndent(2)
	if err := enc.Encode([]any{value}); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

func shortenStatistics(value any) {
	switch v := value.(type) {
	case []any:
		for _, e := range v {
			shortenStatistics(e)
		}
	case map[string]any:
		if v["name"] == "envoy.access_loggers.stats" {
			delete(v, "typedConfig")
			delete(v, "filter")
		}
		for _, e := range v {
			shortenStatistics(e)
		}
	}
}
