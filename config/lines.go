package config

import (
	"strings"

	"go.yaml.in/yaml/v3"
)

// fieldLines are the lines of the fields of one object, by path.
type fieldLines map[string]int

// of is the line of a field. For a field that is not written it is the line of the nearest one around
// it, or else first.
func (l fieldLines) of(path string, first int) int {
	for path != "" {
		if line, written := l[path]; written {
			return line
		}
		path = path[:max(0, strings.LastIndexAny(path, ".["))]
	}
	return first
}

// note takes in the lines of a free value at path and of everything below it.
func (l fieldLines) note(path string, n *yaml.Node) {
	n = deref(n)
	for i, item := range n.Content {
		switch {
		case n.Kind == yaml.SequenceNode:
			l[at(path, i)] = item.Line
			l.note(at(path, i), item)
		case i%2 == 0:
			l[below(path, item.Value)] = item.Line
			l.note(below(path, item.Value), n.Content[i+1])
		}
	}
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
	p := newParser(name, data)
	p.lines = map[int]fieldLines{}
	p.parse(data)
	return func(objectLine int, field string) int { return p.lines[objectLine].of(field, objectLine) }
}
