package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"go/scanner"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
	"google.golang.org/protobuf/proto"
	mesh "istio.io/api/mesh/v1alpha1"
)

// Kinds of documents that are no objects.
const (
	meshConfig = "MeshConfig"
	// proxyAnnotation is a ProxyConfig in an annotation of this name.
	proxyAnnotation = "proxy.istio.io/config"
)

// module is a Go module whose files are read.
type module struct{ name, dir string }

// document is one configuration object.
type document struct {
	place string // "istio/samples/web.yaml:12"
	kind  string // "VirtualService"
	name  string // "shop/web"; empty for what is no object
	text  []byte // YAML; for what is no object, its fields
}

// collect returns the documents of the modules, each once, ordered by place.
func collect(modules []module) ([]document, error) {
	c := collector{seen: map[string]bool{}}
	for _, m := range modules {
		err := filepath.WalkDir(m.dir, func(path string, entry fs.DirEntry, err error) error {
			if err != nil || entry.IsDir() {
				return err
			}
			name, err := filepath.Rel(m.dir, path)
			if err != nil {
				return err
			}
			return c.file(m.name+"/"+filepath.ToSlash(name), path)
		})
		if err != nil {
			return nil, fmt.Errorf("read module %s: %w", m.name, err)
		}
	}
	return c.documents, nil
}

type collector struct {
	documents []document
	seen      map[string]bool // kind and canonical JSON
}

// file reads one file. Its extension says where YAML is in it.
func (c *collector) file(name, path string) error {
	var texts func([]byte) []passage
	switch filepath.Ext(path) {
	case ".yaml", ".yml", ".json":
		texts = func(data []byte) []passage { return []passage{{1, string(data)}} }
	case ".md":
		texts = func(data []byte) []passage { return fenced(string(data)) }
	case ".proto":
		texts = func(data []byte) []passage { return fenced(comment.ReplaceAllString(string(data), "")) }
	case ".go":
		if strings.HasSuffix(path, ".pb.go") || strings.HasSuffix(path, ".gen.go") {
			return nil
		}
		texts = rawStrings
	default:
		return nil
	}
	data, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	for _, t := range texts(data) {
		c.passage(name, t)
	}
	return nil
}

// passage is a part of a file, and the line where it begins.
type passage struct {
	line int
	text string
}

var (
	comment   = regexp.MustCompile(`(?m)^ *// ?`)
	separator = regexp.MustCompile(`(?m)^---.*$`)
	// textPlace and numberPlace are placeholders of Go's templates and of its fmt package.
	textPlace   = regexp.MustCompile(`\{\{ *[.$][\w.]* *(?:\| *\w+ *)*\}\}|%[svq]`)
	numberPlace = regexp.MustCompile(`%d`)
)

// fenced returns the code blocks of Markdown.
func fenced(text string) []passage {
	var out []passage
	var block []string
	inside := false
	for i, line := range strings.Split(text, "\n") {
		switch fence := strings.HasPrefix(strings.TrimSpace(line), "```"); {
		case fence && inside:
			out = append(out, passage{i + 1 - len(block), strings.Join(block, "\n")})
			inside, block = false, nil
		case fence:
			inside = true
		case inside:
			block = append(block, line)
		}
	}
	return out
}

// rawStrings returns the raw string literals of Go code that have several lines.
func rawStrings(data []byte) []passage {
	var out []passage
	files := token.NewFileSet()
	file := files.AddFile("", files.Base(), len(data))
	var s scanner.Scanner
	s.Init(file, data, nil, 0)
	for {
		pos, tok, literal := s.Scan()
		if tok == token.EOF {
			return out
		}
		if tok == token.STRING && literal[0] == '`' && strings.Contains(literal, "\n") {
			out = append(out, passage{file.Line(pos), strings.Trim(literal, "`")})
		}
	}
}

// passage adds the documents of a text in YAML. Placeholders of templates get a value. What is no
// YAML, or a template with more than placeholders, is left out.
func (c *collector) passage(file string, p passage) {
	starts := separator.FindAllStringIndex(p.text, -1)
	starts = append(starts, []int{len(p.text), len(p.text)})
	from := 0
	for _, next := range starts {
		text := p.text[from:next[0]]
		place := file + ":" + strconv.Itoa(p.line+strings.Count(p.text[:from], "\n"))
		from = next[1]
		text = numberPlace.ReplaceAllString(textPlace.ReplaceAllString(text, "example"), "80")
		var root yaml.Node
		if strings.Contains(text, "{{") || yaml.Unmarshal([]byte(text), &root) != nil || len(root.Content) != 1 {
			continue
		}
		c.node(place, root.Content[0], []byte(text))
		c.annotations(place, root.Content[0])
	}
}

// node adds the documents that a YAML document is or contains. text is that of the document.
func (c *collector) node(place string, n *yaml.Node, text []byte) {
	if n.Kind != yaml.MappingNode {
		return
	}
	apiVersion, kind := scalar(n, "apiVersion"), scalar(n, "kind")
	group, _, _ := strings.Cut(apiVersion, "/")
	switch {
	case kind == "List":
		if items := child(n, "items"); items != nil {
			for _, item := range items.Content {
				c.node(place, item, marshal(item))
			}
		}
	case kind == "ConfigMap":
		if data := child(n, "data"); data != nil {
			c.add(document{place: place, kind: meshConfig, text: []byte(scalar(data, "mesh"))})
		}
	case kind == "IstioOperator":
		if spec := child(n, "spec"); spec != nil && child(spec, "meshConfig") != nil {
			c.add(document{place: place, kind: meshConfig, text: marshal(child(spec, "meshConfig"))})
		}
	case slices.Contains([]string{"networking.istio.io", "security.istio.io", "telemetry.istio.io",
		"extensions.istio.io"}, group):
		c.object(place, kind, n, text)
	case kind == "" && child(n, "meshConfig") != nil: // values of a Helm chart
		c.add(document{place: place, kind: meshConfig, text: marshal(child(n, "meshConfig"))})
	case kind == "" && apiVersion == "" && isMesh(n):
		c.add(document{place: place, kind: meshConfig, text: text})
	}
}

// object adds an object. One without a name gets one: it is an example of a specification. The
// field _err of Istio's test data, the error that its schema gives, is left out.
func (c *collector) object(place, kind string, n *yaml.Node, text []byte) {
	if i := slices.IndexFunc(n.Content, func(f *yaml.Node) bool { return f.Value == "_err" }); i >= 0 {
		n.Content = slices.Delete(n.Content, i, i+2)
		text = marshal(n)
	}
	metadata := child(n, "metadata")
	if metadata == nil {
		metadata = &yaml.Node{Kind: yaml.MappingNode}
		n.Content = append(n.Content, &yaml.Node{Kind: yaml.ScalarNode, Value: "metadata"}, metadata)
	}
	if scalar(metadata, "name") == "" && metadata.Kind == yaml.MappingNode {
		metadata.Content = append(metadata.Content, &yaml.Node{Kind: yaml.ScalarNode, Value: "name"},
			&yaml.Node{Kind: yaml.ScalarNode, Value: "example"})
		text = marshal(n)
	}
	name := scalar(metadata, "name")
	if namespace := scalar(metadata, "namespace"); namespace != "" {
		name = namespace + "/" + name
	}
	c.add(document{place: place, kind: kind, name: name, text: text})
}

// annotations adds the ProxyConfigs in annotations within a document, of workloads for instance.
func (c *collector) annotations(place string, n *yaml.Node) {
	if n.Kind == yaml.MappingNode {
		c.add(document{place: place, kind: proxyAnnotation, text: []byte(scalar(n, proxyAnnotation))})
	}
	for _, inner := range n.Content {
		c.annotations(place, inner)
	}
}

// add adds a document that is new and not empty.
func (c *collector) add(d document) {
	var value map[string]any
	if yaml.Unmarshal(d.text, &value) != nil || len(value) == 0 {
		return
	}
	canonical, err := json.Marshal(value)
	if err != nil { // a key that is not text
		canonical = d.text
	}
	if id := d.kind + " " + string(canonical); !c.seen[id] {
		c.seen[id] = true
		d.text = bytes.TrimSpace(d.text)
		c.documents = append(c.documents, d)
	}
}

// isMesh says that all fields of n are those of a MeshConfig.
func isMesh(n *yaml.Node) bool {
	fields := proto.Message(&mesh.MeshConfig{}).ProtoReflect().Descriptor().Fields()
	for i := 0; i < len(n.Content); i += 2 {
		if fields.ByJSONName(n.Content[i].Value) == nil {
			return false
		}
	}
	return len(n.Content) > 0
}

// child is the value of a field; nil when there is none.
func child(n *yaml.Node, field string) *yaml.Node {
	for i := 0; i+1 < len(n.Content); i += 2 {
		if n.Content[i].Value == field {
			return n.Content[i+1]
		}
	}
	return nil
}

// scalar is the text of a field; empty when there is none.
func scalar(n *yaml.Node, field string) string {
	if v := child(n, field); v != nil && v.Kind == yaml.ScalarNode {
		return v.Value
	}
	return ""
}

// marshal writes a node that was read.
func marshal(n *yaml.Node) []byte {
	text, err := yaml.Marshal(n)
	if err != nil {
		return nil // an alias whose anchor is elsewhere
	}
	return text
}
