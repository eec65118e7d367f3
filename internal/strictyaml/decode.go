package strictyaml

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"reflect"
	"slices"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/ashore-mesh/ashore/internal/nearest"
)

// Error is one problem of a settings file.
type Error struct {
	File string
	// Line is zero if the setting is not in the file.
	Line int
	// Setting is the path of the setting, "xds.gap"; may be empty.
	Setting string
	Text    string
}

func (e *Error) Error() string {
	where := place(e.File, e.Line) + ": "
	if e.Setting != "" {
		where += e.Setting + ": "
	}
	return where + e.Text
}

// Decode decodes the YAML document data into a pointer to a struct that has the defaults. Its
// fields have yaml tags. A field of type yaml.Node receives its section undecoded, and a field
// without a tag is not in the file. file is the name for errors. The returned error joins an Error
// for each problem.
func Decode(file string, data []byte, into any) (*Places, error) {
	places := &Places{file: file, at: map[string]string{}}
	dec := yaml.NewDecoder(bytes.NewReader(data))
	var doc yaml.Node
	switch err := dec.Decode(&doc); {
	case errors.Is(err, io.EOF):
		return places, nil // nothing but comments: the defaults
	case err != nil:
		line, text := SyntaxError(data, err)
		return places, &Error{File: file, Line: line, Text: text}
	}
	var more yaml.Node
	if err := dec.Decode(&more); !errors.Is(err, io.EOF) {
		return places, &Error{File: file, Line: max(1, more.Line),
			Text: "a second document: settings are one YAML document, remove the \"---\" between"}
	}
	d := decoder{file: file, places: places}
	d.value("", doc.Content[0], reflect.ValueOf(into).Elem())
	return places, errors.Join(d.errs...)
}

// decoder decodes a document into a struct.
type decoder struct {
	file   string
	places *Places
	errs   []error
}

func (d *decoder) fail(n *yaml.Node, path, format string, args ...any) {
	d.errs = append(d.errs, &Error{File: d.file, Line: n.Line, Setting: path, Text: fmt.Sprintf(format, args...)})
}

// value decodes n into v.
func (d *decoder) value(path string, n *yaml.Node, v reflect.Value) {
	if n.Kind == yaml.AliasNode {
		n = n.Alias
	}
	switch {
	case v.Type() == reflect.TypeFor[yaml.Node]():
		v.Set(reflect.ValueOf(*merged(v.Addr().Interface().(*yaml.Node), n)))
	case n.Tag == "!!null": // "xds:" with nothing below: the defaults
	case v.Type() == reflect.TypeFor[time.Duration]():
		d.duration(path, n, v)
	case v.Kind() == reflect.Struct:
		d.section(path, n, v)
	case v.Kind() == reflect.Slice && v.Type().Elem().Kind() == reflect.Struct && n.Kind == yaml.SequenceNode:
		v.Set(reflect.MakeSlice(v.Type(), len(n.Content), len(n.Content)))
		for i, item := range n.Content {
			d.value(fmt.Sprintf("%s[%d]", path, i), item, v.Index(i))
		}
	case v.Kind() == reflect.Map && !d.distinct(path, n):
	default:
		d.scalar(path, n, v)
	}
}

// merged returns old with the content of n: of two mappings the entries of both, else n.
func merged(old, n *yaml.Node) *yaml.Node {
	if old.Kind != yaml.MappingNode || n.Kind != yaml.MappingNode {
		return n
	}
	out := *old
	out.Content = slices.Clone(old.Content)
	for i := 0; i+1 < len(n.Content); i += 2 {
		key, value := n.Content[i], n.Content[i+1]
		at := 0
		for at < len(out.Content) && out.Content[at].Value != key.Value {
			at += 2
		}
		if at == len(out.Content) {
			out.Content = append(out.Content, key, value)
		} else {
			out.Content[at+1] = merged(out.Content[at+1], value)
		}
	}
	return &out
}

// section decodes the mapping n into structs, each of which has some of its settings.
func (d *decoder) section(path string, n *yaml.Node, structs ...reflect.Value) {
	if n.Kind != yaml.MappingNode {
		d.fail(n, path, "want settings with names (name: value), got %s", describe(n))
		return
	}
	fields := map[string]reflect.Value{}
	var names []string
	for _, v := range structs {
		for _, f := range reflect.VisibleFields(v.Type()) {
			name, _, _ := strings.Cut(f.Tag.Get("yaml"), ",")
			if name == "" {
				continue
			}
			fields[name] = v.FieldByIndex(f.Index)
			names = append(names, name)
		}
	}
	d.distinct(path, n)
	for i := 0; i+1 < len(n.Content); i += 2 {
		key := n.Content[i]
		at := join(path, key.Value)
		field, known := fields[key.Value]
		if !known {
			d.fail(key, at, "unknown setting%s", suggestion(key.Value, names))
			continue
		}
		d.places.at[at] = place(d.file, key.Line)
		d.value(at, n.Content[i+1], field)
	}
}

// distinct reports names that the mapping n has twice. It returns true if there are none.
func (d *decoder) distinct(path string, n *yaml.Node) bool {
	ok := true
	lines := map[string]int{}
	for i := 0; n.Kind == yaml.MappingNode && i+1 < len(n.Content); i += 2 {
		key := n.Content[i]
		if first := lines[key.Value]; first != 0 {
			d.fail(key, join(path, key.Value), "set twice, first on line %d", first)
			ok = false
		}
		lines[key.Value] = key.Line
	}
	return ok
}

func (d *decoder) duration(path string, n *yaml.Node, v reflect.Value) {
	t, err := time.ParseDuration(n.Value)
	if n.Kind != yaml.ScalarNode || err != nil || t < 0 {
		d.fail(n, path, "want a duration such as 50ms or 1m30s, got %s", describe(n))
		return
	}
	v.SetInt(int64(t))
}

func (d *decoder) scalar(path string, n *yaml.Node, v reflect.Value) {
	if err := n.Decode(v.Addr().Interface()); err != nil {
		d.fail(n, path, "want %s, got %s", wanted(v.Type()), describe(n))
	}
}

// wanted describes a type for operators.
func wanted(t reflect.Type) string {
	switch t.Kind() {
	case reflect.Bool:
		return "true or false"
	case reflect.Int, reflect.Int64, reflect.Uint32, reflect.Uint64:
		return "a whole number"
	case reflect.Slice:
		return "a list"
	case reflect.Map:
		return "names with values (name: value)"
	default:
		return "a text"
	}
}

// describe describes a value in the file for operators.
func describe(n *yaml.Node) string {
	switch n.Kind {
	case yaml.MappingNode:
		return "settings with names"
	case yaml.SequenceNode:
		return "a list"
	default:
		return fmt.Sprintf("%q", n.Value)
	}
}

func join(path, name string) string {
	if path == "" {
		return name
	}
	return path + "." + name
}

// suggestion returns "; did you mean X?", or the list of known names if none is similar.
func suggestion(name string, known []string) string {
	if near := nearest.Name(name, known); near != "" {
		return fmt.Sprintf("; did you mean %q?", near)
	}
	return "; known here: " + strings.Join(slices.Sorted(slices.Values(known)), ", ")
}
