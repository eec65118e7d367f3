package main

import (
	"cmp"
	"flag"
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"os/exec"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/ashore-mesh/ashore/config"
	"github.com/ashore-mesh/ashore/internal/goldentest"
)

var _ = flag.Bool("update", false, "rewrite fieldcomments.txt")

// fieldcomments.txt has the comments of Istio's API at the version in go.mod. "make golden" writes
// it.
func TestFieldComments(t *testing.T) {
	t.Parallel()
	out, err := exec.CommandContext(t.Context(), "go", "list", "-m", "-f", "{{.Dir}}", "istio.io/api").Output()
	if err != nil {
		t.Fatal(err)
	}
	structs := map[string]*goStruct{} // by "DIRECTORY.NAME"
	files, err := filepath.Glob(filepath.Join(strings.TrimSpace(string(out)), "*", "v*", "*.pb.go"))
	if err != nil || len(files) == 0 {
		t.Fatal(files, err)
	}
	for _, file := range files {
		readStructs(t, file, structs)
	}
	messages := map[protoreflect.FullName]protoreflect.MessageDescriptor{}
	for _, k := range config.Kinds() {
		if k.Group == "extensions.istio.io" { // WebAssembly, which is not supported
			continue
		}
		reachable(k.NewSpec().ProtoReflect().Descriptor(), messages)
	}
	var b strings.Builder
	for _, name := range slices.Sorted(maps.Keys(messages)) {
		m := messages[name]
		folder := strings.ReplaceAll(strings.TrimPrefix(string(m.ParentFile().Package()), "istio."), ".", "/")
		key := folder + "." + goName(m)
		s := structs[key]
		if s == nil {
			t.Errorf("no comments of %s (%s)", name, key)
			continue
		}
		b.WriteString(string(name) + "\t" + s.comment + "\n")
		for i := range m.Fields().Len() {
			fd := m.Fields().Get(i)
			text, ok := s.fields[string(fd.Name())]
			if !ok { // a member of a oneof is in a struct of its own
				text = member(structs, key, string(fd.Name()))
			}
			if text != "" {
				b.WriteString("  " + fd.JSONName() + "\t" + text + "\n")
			}
		}
	}
	if b.Len() > 150<<10 {
		t.Errorf("%d bytes, want at most 150 KiB", b.Len())
	}
	goldentest.Compare(t, "fieldcomments.txt", b.String())
}

// goStruct is a generated struct: its comment, and those of its fields by protobuf's name.
type goStruct struct {
	comment string
	fields  map[string]string
}

func readStructs(t *testing.T, file string, all map[string]*goStruct) {
	t.Helper()
	parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.ParseComments|parser.SkipObjectResolution)
	if err != nil {
		t.Fatal(err)
	}
	area, version := filepath.Base(filepath.Dir(filepath.Dir(file))), filepath.Base(filepath.Dir(file))
	for _, d := range parsed.Decls {
		g, ok := d.(*ast.GenDecl)
		if !ok || g.Tok != token.TYPE {
			continue
		}
		for _, spec := range g.Specs {
			ts := spec.(*ast.TypeSpec)
			st, ok := ts.Type.(*ast.StructType)
			if !ok {
				continue
			}
			s := &goStruct{comment: prose(cmp.Or(ts.Doc, g.Doc)), fields: map[string]string{}}
			for _, f := range st.Fields.List {
				if f.Tag == nil {
					continue
				}
				tag := reflect.StructTag(strings.Trim(f.Tag.Value, "`")).Get("protobuf")
				if _, rest, ok := strings.Cut(tag, ",name="); ok {
					name, _, _ := strings.Cut(rest, ",")
					s.fields[name] = prose(f.Doc)
				}
			}
			all[area+"/"+version+"."+ts.Name.Name] = s
		}
	}
}

// member is the comment of a member of a oneof of a message.
func member(structs map[string]*goStruct, message, field string) (text string) {
	best := ""
	for key, s := range structs {
		if f, ok := s.fields[field]; ok && strings.HasPrefix(key, message+"_") && len(s.fields) == 1 &&
			(best == "" || len(key) < len(best)) {
			best, text = key, f
		}
	}
	return text
}

// prose is the text of a comment without examples, marks and links, in one line.
func prose(c *ast.CommentGroup) string {
	var paragraphs []string
	var now []string
	end := func() {
		text := strings.Join(now, " ")
		now = nil
		if text != "" && !strings.HasSuffix(text, ":") {
			paragraphs = append(paragraphs, text)
		}
	}
	code := false
	for line := range strings.Lines(c.Text()) {
		trimmed := strings.TrimSpace(line)
		switch {
		case strings.HasPrefix(trimmed, "```"):
			code = !code
			end()
		case code, strings.HasPrefix(trimmed, "+"), strings.HasPrefix(trimmed, "$"), strings.HasPrefix(trimmed, "<"),
			strings.HasPrefix(trimmed, "-->"), strings.HasPrefix(trimmed, "{{"), strings.HasPrefix(trimmed, "Deprecated: Marked"),
			strings.HasPrefix(line, "\t"):
		case trimmed == "":
			end()
		default:
			now = append(now, trimmed)
		}
	}
	end()
	text := strings.Join(paragraphs[:min(len(paragraphs), 3)], " ")
	text = regexp.MustCompile(`\[([^\]]*)\]\([^)]*\)`).ReplaceAllString(text, "$1")
	text = regexp.MustCompile(`<[^<>]*>|\*\*|\$hide_from_docs|\+\w+:\S*`).ReplaceAllString(text, "")
	return strings.Join(strings.Fields(text), " ")
}

func reachable(m protoreflect.MessageDescriptor, all map[protoreflect.FullName]protoreflect.MessageDescriptor) {
	if all[m.FullName()] != nil || !strings.HasPrefix(string(m.FullName()), "istio.") || m.IsMapEntry() {
		return
	}
	all[m.FullName()] = m
	for i := range m.Fields().Len() {
		fd := m.Fields().Get(i)
		if fd.IsMap() {
			fd = fd.MapValue()
		}
		if fd.Message() != nil {
			reachable(fd.Message(), all)
		}
	}
}

// goName is the name of the struct of a message: "Outer_Inner".
func goName(m protoreflect.MessageDescriptor) string {
	if outer, ok := m.Parent().(protoreflect.MessageDescriptor); ok {
		return goName(outer) + "_" + string(m.Name())
	}
	return string(m.Name())
}
