package webhook

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"
	"go.yaml.in/yaml/v3"
	"golang.org/x/tools/txtar"

	"github.com/ashore-mesh/ashore/config"
)

// sample is an object as text, or a file.
type sample struct {
	name, text string
	kind       config.Kind // empty: a file
}

// samples are those of config's tests: what is taken, what is refused, and what is odd.
func samples(t testing.TB) []sample {
	t.Helper()
	const folder = "../config/testdata"
	var out []sample
	for _, path := range glob(t, folder+"/good/*") {
		out = append(out, sample{name: filepath.Base(path), text: readText(t, path)})
	}
	for _, path := range glob(t, folder+"/problems/*.txtar") {
		kind := config.Kind(strings.TrimSuffix(filepath.Base(path), ".txtar"))
		for _, f := range txtar.Parse([]byte(readText(t, path))).Files {
			if strings.HasSuffix(f.Name, ".problems") {
				continue
			}
			s := sample{name: f.Name, text: string(f.Data)}
			if info, ok := config.Info(kind); ok {
				s.kind, s.text = kind, "apiVersion: "+info.APIVersion()+"\nkind: "+string(kind)+"\nmetadata: {name: web, namespace: shop}\nspec:\n"+s.text
			}
			out = append(out, s)
		}
	}
	for _, path := range glob(t, folder+"/odd/*.txt") {
		n := 0
		for line := range strings.Lines(readText(t, path)) {
			n++
			kind, spec, _ := strings.Cut(strings.TrimSuffix(line, "\n"), " ")
			info, _ := config.Info(config.Kind(kind))
			out = append(out, sample{fmt.Sprintf("%s-%d.yaml", filepath.Base(path), n),
				"apiVersion: " + info.APIVersion() + "\nkind: " + kind + "\nmetadata: {name: odd, namespace: shop}\nspec: " + spec + "\n", info.Kind})
		}
	}
	return out
}

func glob(t testing.TB, pattern string) []string {
	t.Helper()
	paths, err := filepath.Glob(pattern)
	if err != nil || len(paths) == 0 {
		t.Fatalf("%s: nothing is there (%v)", pattern, err)
	}
	return paths
}

func readText(t testing.TB, path string) string {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

// saying is a problem without the place in a text.
type saying struct{ Severity, Field, Text string }

func sortSayings(list []saying) []saying {
	slices.SortFunc(list, func(a, b saying) int {
		return cmp.Or(cmp.Compare(a.Severity, b.Severity), cmp.Compare(a.Field, b.Field), cmp.Compare(a.Text, b.Text))
	})
	return list
}

// A review and a text of the same object get the same answer, which is that of the gate.
func TestOneGate(t *testing.T) {
	t.Parallel()
	s := newServer(t, Config{Rate: 1_000_000})
	texts, reviews := 0, 0
	for _, sample := range samples(t) {
		gate := config.Parse(sample.name, []byte(sample.text))
		w := post(s, validatePath+"?file="+sample.name, "", sample.text)
		var listed []config.Problem
		if err := json.Unmarshal(w.Body.Bytes(), &listed); err != nil {
			t.Fatalf("%s: status %d: %s", sample.name, w.Code, w.Body)
		}
		want := slices.Clone(gate.Problems)
		slices.SortStableFunc(want, func(a, b config.Problem) int {
			return cmp.Or(cmp.Compare(a.Severity, b.Severity), cmp.Compare(a.Line, b.Line))
		})
		if len(want) > 0 || len(listed) > 0 {
			if diff := gocmp.Diff(want, listed); diff != "" {
				t.Errorf("%s as text (-gate +answer):\n%s", sample.name, diff)
			}
		}
		if wrong := slices.ContainsFunc(want,
			config.Problem.IsError); wrong != (w.Code == http.StatusUnprocessableEntity) || !wrong &&
			w.Code != http.StatusOK {
			t.Errorf("%s as text: status %d for %d problems", sample.name, w.Code, len(want))
		}
		texts++
		if object, ok := asJSON(sample); ok {
			checkReview(t, s, sample, object, want)
			reviews++
		}
	}
	if texts < 900 || reviews < 700 {
		t.Errorf("only %d texts and %d reviews were compared", texts, reviews)
	}
}

// asJSON is a sample as an API server would send it, its fields in their order; not ok when it is
// no object that could be in one.
func asJSON(s sample) ([]byte, bool) {
	var doc yaml.Node
	if s.kind == "" || yaml.Unmarshal([]byte(s.text), &doc) != nil || len(doc.Content) != 1 {
		return nil, false
	}
	object, err := toJSON(doc.Content[0])
	return object, err == nil
}

// errNoJSON is of what YAML alone has: aliases and merges.
var errNoJSON = errors.New("there is no such thing in JSON")

func toJSON(n *yaml.Node) ([]byte, error) {
	var parts []string
	switch n.Kind {
	case yaml.MappingNode:
		for i := 0; i+1 < len(n.Content); i += 2 {
			value, err := toJSON(n.Content[i+1])
			if n.Content[i].ShortTag() == "!!merge" {
				err = errNoJSON
			}
			if err != nil {
				return nil, err
			}
			parts = append(parts, fmt.Sprintf("%s: %s", quoted(n.Content[i].Value), value))
		}
		return []byte("{" + strings.Join(parts, ", ") + "}"), nil
	case yaml.SequenceNode:
		for _, item := range n.Content {
			value, err := toJSON(item)
			if err != nil {
				return nil, err
			}
			parts = append(parts, string(value))
		}
		return []byte("[" + strings.Join(parts, ", ") + "]"), nil
	case yaml.ScalarNode:
		var value any
		if err := n.Decode(&value); err != nil {
			return nil, err
		}
		return json.Marshal(value)
	default: // an alias
		return nil, errNoJSON
	}
}

func quoted(text string) []byte {
	out, err := json.Marshal(text)
	if err != nil {
		panic(err) // text can always be written
	}
	return out
}

// checkReview wants a review to say of an object what the gate says of its text.
func checkReview(t *testing.T, s *Server, sample sample, object []byte, problems []config.Problem) {
	t.Helper()
	info, _ := config.Info(sample.kind)
	r := ask(t, s, fmt.Sprintf(`{"uid": "1", "kind": {"group": %q, "version": "v1", "kind": %q}, "operation": "CREATE", "object": %s}`, info.Group, info.Kind, object))
	want, got := []saying{}, []saying{}
	wrong := false
	for _, p := range problems {
		wrong = wrong || p.IsError()
		if p.IsError() {
			want = append(want, saying{"error", p.Field, p.Text})
		} else {
			want = append(want, saying{"warning", "", sentence(p)})
		}
	}
	if r.Status != nil {
		for _, c := range r.Status.Details.Causes {
			got = append(got, saying{"error", c.Field, c.Message})
		}
	}
	for _, text := range r.Warnings {
		got = append(got, saying{"warning", "", text})
	}
	if r.Allowed == wrong {
		t.Errorf("%s as a review: allowed %v, and the gate says %v", sample.name, r.Allowed, problems)
	}
	if diff := gocmp.Diff(sortSayings(want), sortSayings(got)); diff != "" {
		t.Errorf("%s as a review (-gate +answer):\n%s\n%s", sample.name, diff, sample.text)
	}
}
