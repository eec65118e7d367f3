package config

import (
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
)

// lines knows where the parts of one document are written.
type lines struct {
	root *yaml.Node // the document's value
	// offset is what to add to a node's line: the parts of a file are read one by one.
	offset int
}

// line is the line of n in the file.
func (l lines) line(n *yaml.Node) int { return n.Line + l.offset }

// of is the line of the field at path, "spec.http[0].match[1].headers[x-user]". Of a field that is
// not written it is the line of the nearest one around it.
func (l lines) of(path string) int {
	n, line := deref(l.root), l.line(l.root)
	for path != "" && n != nil {
		var step string
		step, path = cutStep(path)
		at, next := child(n, step)
		if at == nil {
			break
		}
		line, n = l.line(at), deref(next)
	}
	return line
}

// cutStep splits the first step off a path.
func cutStep(path string) (step, rest string) {
	path = strings.TrimPrefix(path, ".")
	if strings.HasPrefix(path, "[") {
		if end := strings.Index(path, "]"); end > 0 {
			return path[1:end], path[end+1:]
		}
	}
	if end := strings.IndexAny(path, ".["); end > 0 {
		return path[:end], path[end:]
	}
	return path, ""
}

// child finds one step below n: where it is written, and its value. Both are nil when it is not
// there.
func child(n *yaml.Node, step string) (at, value *yaml.Node) {
	switch n.Kind {
	case yaml.SequenceNode:
		if i, err := strconv.Atoi(step); err == nil && i >= 0 && i < len(n.Content) {
			return n.Content[i], n.Content[i]
		}
	case yaml.MappingNode:
		for i := 0; i+1 < len(n.Content); i += 2 {
			if sameField(n.Content[i].Value, step) {
				return n.Content[i], n.Content[i+1]
			}
		}
	}
	return nil, nil
}

// sameField says whether two spellings mean one field: exportTo, export_to.
func sameField(a, b string) bool {
	return a == b || strings.EqualFold(strings.ReplaceAll(a, "_", ""), strings.ReplaceAll(b, "_", ""))
}

// deref follows an alias to what it stands for.
func deref(n *yaml.Node) *yaml.Node {
	for n != nil && n.Kind == yaml.AliasNode {
		n = n.Alias
	}
	return n
}

// isNull says that n stands for nothing.
func isNull(n *yaml.Node) bool {
	n = deref(n)
	return n == nil || n.Kind == 0 || n.Kind == yaml.ScalarNode && n.ShortTag() == "!!null"
}

// FieldLines parses a file and returns a function that finds the line of a field. It takes the
// first line of the object, as in its Origin, and the path of the field. For a field that is not
// written it returns the line of the nearest one around it.
func FieldLines(name string, data []byte) func(objectLine int, field string) int {
	objects := map[int]lines{} // by first line
	add := func(root *yaml.Node, offset int) {
		l := lines{root: deref(root), offset: offset}
		objects[l.line(l.root)] = l
	}
	p := &parser{file: name}
	for _, doc := range p.documents(data) {
		add(doc.root, doc.offset)
		_, list := child(deref(doc.root), "items")
		if list = deref(list); list == nil || list.Kind != yaml.SequenceNode {
			continue
		}
		for _, item := range list.Content {
			add(item, doc.offset)
		}
	}
	return func(objectLine int, field string) int {
		l, ok := objects[objectLine]
		if !ok {
			return objectLine
		}
		return l.of(field)
	}
}
