package settings

import (
	"fmt"
	"maps"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/ashore-mesh/ashore/registry/kube"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/ashore-mesh/ashore/internal/admin"
)

// docs/settings.md has every setting with its default, and no other.
func TestSettingsDoc(t *testing.T) {
	t.Parallel()
	want := map[string]string{}
	leaves("", reflect.ValueOf(Default()), want)
	leaves("sources[]", reflect.ValueOf(Source{Required: true}), want)
	leaves("sources[]", reflect.ValueOf(FilesSource{}), want)
	text, err := os.ReadFile("../../docs/settings.md")
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]string{}
	for _, line := range strings.Split(string(text), "\n") {
		cells := strings.Split(line, " | ")
		if name := strings.Trim(cells[0], "| `"); len(cells) == 3 && strings.HasPrefix(line, "| `") {
			got[name] = strings.TrimSpace(cells[1])
		}
	}
	kindDoc(t, "mcp", reflect.ValueOf(MCPSource{}))
	kindDoc(t, "consul", reflect.ValueOf(ConsulSource{}.Options))
	kindDoc(t, "kubernetes", reflect.ValueOf(kube.DefaultOptions()))
	for _, name := range slices.Sorted(maps.Keys(want)) {
		have, ok := got[name]
		switch {
		case !ok:
			t.Errorf("docs/settings.md does not have %s", name)
		case want[name] == "" && (have == "none" || !strings.HasPrefix(have, "`")), // something that depends
			name == "xds.advertise": // so does this
		case have != "`"+want[name]+"`":
			t.Errorf("docs/settings.md says that the default of %s is %s, it is %q", name, have, want[name])
		}
	}
	for _, name := range slices.Sorted(maps.Keys(got)) {
		if _, ok := want[name]; !ok {
			t.Errorf("docs/settings.md has %s, which there is not", name)
		}
	}
}

// kindDoc wants a row for each option of a kind of source in the page about it, and no other.
func kindDoc(t *testing.T, kind string, options reflect.Value) {
	t.Helper()
	want, got := map[string]string{}, map[string]bool{}
	leaves("", options, want)
	page := "../../docs/" + kind + ".md"
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		if cells := strings.Split(line, " | "); len(cells) == 3 && strings.HasPrefix(line, "| `") {
			for _, name := range strings.Split(strings.Trim(cells[0], "| "), ", ") {
				got[strings.Trim(name, "`")] = true
			}
		}
	}
	for name := range want {
		if !got[name] {
			t.Errorf("%s does not have %s", page, name)
		}
	}
}

// leaves adds the settings in v with their defaults, as operators write them; "" stands for none.
func leaves(path string, v reflect.Value, to map[string]string) {
	for _, f := range reflect.VisibleFields(v.Type()) {
		value := v.FieldByIndex(f.Index)
		tag := f.Tag.Get("yaml")
		if tag == "" {
			continue
		}
		name := strings.TrimPrefix(path+"."+tag, ".")
		switch x := value.Interface().(type) {
		case yaml.Node, admin.Roles:
			to[name] = ""
		case time.Duration:
			to[name] = shortDuration(x)
		case string, bool, int:
			to[name] = fmt.Sprint(x)
		default:
			if value.Kind() == reflect.Struct {
				leaves(name, value, to)
			} else {
				to[name] = ""
			}
		}
	}
}

// shortDuration is a duration as people write it: 1m, not 1m0s.
func shortDuration(d time.Duration) string {
	s := d.String()
	if strings.HasSuffix(s, "m0s") {
		s = strings.TrimSuffix(s, "0s")
	}
	if strings.HasSuffix(s, "h0m") {
		s = strings.TrimSuffix(s, "0m")
	}
	return s
}
