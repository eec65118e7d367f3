package config

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"
)

// A field that cannot be read does not hide what else is wrong with the object, in lists and beside
// them.
func TestRefusedHidesNothing(t *testing.T) {
	t.Parallel()
	got := Parse("a.yaml", []byte(`apiVersion: networking.istio.io/v1
kind: VirtualService
metadata: {name: web, namespace: shop, labels: {a: 1}}
spec:
  hosts: [web]
  http:
  - timeout: soon
    retries: {attempts: -1}
    route: [{destination: {host: web}, weight: 50}, {destination: {host: web}, weight: 60, headers: {request: {set: {"a b": x}}}}]
  - fault: {delay: {fixedDelay: late, percentage: {value: 300}}}
    route: [{destination: {host: web}}]
  - match: [{uri: {exact: 5}}, {uri: {regex: "("}}]
    rewrite: {}
    route: [{destination: {host: 7}}]
`))
	var fields []string
	for _, p := range got.Problems {
		fields = append(fields, fmt.Sprintf("%d %s", p.Line, p.Field))
	}
	want := []string{
		"3 metadata.labels[a]",
		"7 spec.http[0].timeout",
		"8 spec.http[0].retries.attempts",
		`9 spec.http[0].route[1].headers.request.set[a b]`,
		"10 spec.http[1].fault.delay.fixedDelay",
		"10 spec.http[1].fault.delay.percentage.value",
		"12 spec.http[2].match[0].uri.exact",
		"12 spec.http[2].match[1].uri.regex",
		"13 spec.http[2].rewrite",
		"14 spec.http[2].route[0].destination.host",
	}
	if !slices.Equal(fields, want) || len(got.Objects) > 0 || len(got.Broken) != 1 {
		t.Errorf("got %q, want %q\n%v", fields, want, got.Problems)
	}
}

// Of an object that is right but for one value that cannot be read, nothing else is told: not what
// would be right with it.
func TestRefusedAlone(t *testing.T) {
	t.Parallel()
	tried := 0
	for name, text := range rightObjects(t) {
		var root yaml.Node
		if err := yaml.Unmarshal([]byte(text), &root); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		before := Parse(name, []byte(text))
		spec := fieldOf(root.Content[0], "spec")
		if len(before.Objects) != 1 || spec == nil {
			continue
		}
		known := map[string]bool{}
		for _, p := range before.Problems {
			known[p.Field+p.Text] = true
		}
		eachValue(spec, "spec", func(path string, n *yaml.Node) {
			had := *n
			defer func() { *n = had }()
			*n = yaml.Node{Kind: yaml.ScalarNode, Tag: "!!str", Value: "no", Style: yaml.DoubleQuotedStyle}
			if had.Kind == yaml.ScalarNode {
				*n = yaml.Node{Kind: yaml.SequenceNode, Content: []*yaml.Node{{Kind: yaml.MappingNode}}}
			}
			changed, err := yaml.Marshal(&root)
			if err != nil {
				t.Fatal(err)
			}
			tried++
			for _, p := range Parse(name, changed).Problems {
				if !known[p.Field+p.Text] && !within(strings.NewReplacer("[", ".", "]", "").Replace(p.Field),
					strings.NewReplacer("[", ".", "]", "").Replace(path)) {
					t.Errorf("%s: with %s refused it says %s", name, path, p)
				}
			}
		})
	}
	if tried < 500 {
		t.Errorf("tried %d values alone", tried)
	}
}

// eachValue calls f for each value below n.
func eachValue(n *yaml.Node, path string, f func(path string, n *yaml.Node)) {
	for i, c := range n.Content {
		at := fmt.Sprintf("%s[%d]", path, i)
		if n.Kind == yaml.MappingNode {
			if i%2 == 0 {
				continue
			}
			at = path + "." + n.Content[i-1].Value
		}
		f(at, c)
		eachValue(c, at, f)
	}
}

func fieldOf(n *yaml.Node, name string) *yaml.Node {
	_, value := child(n, name)
	return value
}

// rightObjects are the documents of the examples, and of what is right among the tests' data.
func rightObjects(t *testing.T) map[string]string {
	t.Helper()
	texts := map[string]string{"protecting": protecting}
	for _, pattern := range []string{"testdata/good/*.yaml", "../examples/*/*.yaml", "../examples/*/*/*.yaml",
		"../examples/*/*/*/*.yaml"} {
		files, err := filepath.Glob(pattern)
		if err != nil {
			t.Fatal(err)
		}
		for _, file := range files {
			b, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			texts[file] = string(b)
		}
	}
	out := map[string]string{}
	for file, text := range texts {
		for i, doc := range strings.Split(text, "\n---") {
			if strings.Contains(doc, "istio.io/") {
				out[fmt.Sprintf("%s#%d", file, i)] = doc
			}
		}
	}
	return out
}
