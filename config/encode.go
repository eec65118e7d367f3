package config

import (
	"bytes"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"
	"google.golang.org/protobuf/encoding/protojson"
)

// Encode writes objects as one YAML text that Parse reads back as equal objects, with their
// metadata and creation times. Origin, Revision and Hash are not written. The same objects give the
// same text. Errors: an object whose kind is unknown or whose spec is not valid.
func Encode(objects []*Object) ([]byte, error) {
	if len(objects) == 0 {
		return nil, nil
	}
	var out bytes.Buffer
	enc := yaml.NewEncoder(&out)
	enc.SetIndent(2)
	for _, o := range objects {
		doc, err := documentOf(o)
		if err == nil {
			err = enc.Encode(doc)
		}
		if err != nil {
			return nil, fmt.Errorf("write %s: %w", o.Key, err)
		}
	}
	if err := enc.Close(); err != nil {
		return nil, fmt.Errorf("write objects: %w", err)
	}
	return out.Bytes(), nil
}

// documentOf is the tree of one object.
func documentOf(o *Object) (*yaml.Node, error) {
	info, ok := Info(o.Kind)
	if !ok {
		return nil, fmt.Errorf("unknown kind %q", o.Kind)
	}
	body, err := protojson.Marshal(o.Spec)
	if err != nil {
		return nil, err
	}
	spec, err := nodeOf(body)
	if err != nil {
		return nil, err
	}
	spellOut(o.Spec.ProtoReflect().Descriptor(), spec)

	metadata := mapping("name", text(o.Name), "namespace", text(o.Namespace))
	if !o.Created.IsZero() {
		metadata.Content = append(metadata.Content, text("creationTimestamp"),
			text(o.Created.UTC().Format(time.RFC3339Nano)))
	}
	if len(o.Labels) > 0 {
		metadata.Content = append(metadata.Content, text("labels"), stringsOf(o.Labels))
	}
	if len(o.Annotations) > 0 {
		metadata.Content = append(metadata.Content, text("annotations"), stringsOf(o.Annotations))
	}
	return mapping("apiVersion", text(info.APIVersion()), "kind", text(string(o.Kind)), "metadata", metadata, "spec",
		spec), nil
}

// mapping makes an object of names and values.
func mapping(pairs ...any) *yaml.Node {
	n := &yaml.Node{Kind: yaml.MappingNode, Tag: "!!map"}
	for i := 0; i < len(pairs); i += 2 {
		n.Content = append(n.Content, text(pairs[i].(string)), pairs[i+1].(*yaml.Node))
	}
	return n
}

// stringsOf makes an object of m in the order of its keys.
func stringsOf(m map[string]string) *yaml.Node {
	n := &yaml.Node{Kind: yaml.MappingNode, Tag: "!!map"}
	for _, k := range slices.Sorted(maps.Keys(m)) {
		n.Content = append(n.Content, text(k), text(m[k]))
	}
	return n
}

// text makes a scalar that reads back as exactly s.
func text(s string) *yaml.Node {
	n := &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!str", Value: s}
	// Block style would lose some blanks and line ends.
	if strings.ContainsFunc(s, func(r rune) bool { return r < ' ' || r > '~' }) || strings.TrimSpace(s) != s ||
		s == "<<" {
		n.Style = yaml.DoubleQuotedStyle
	}
	return n
}

// nodeOf is JSON as a tree in block style.
func nodeOf(body []byte) (*yaml.Node, error) {
	var doc yaml.Node
	if err := yaml.Unmarshal(escape(body), &doc); err != nil {
		return nil, err
	}
	prepare(doc.Content[0])
	return doc.Content[0], nil
}

// escape writes the letters of JSON that YAML would change or refuse in YAML's own way.
func escape(body []byte) []byte {
	if !bytes.ContainsFunc(body, func(r rune) bool { return r > '~' }) {
		return body
	}
	var out bytes.Buffer
	for _, r := range string(body) {
		if r > '~' {
			fmt.Fprintf(&out, `\U%08X`, r)
		} else {
			out.WriteRune(r)
		}
	}
	return out.Bytes()
}

// prepare gives the nodes that were read from JSON the style of YAML.
func prepare(n *yaml.Node) {
	n.Style = 0
	if n.Kind == yaml.ScalarNode && n.Tag == "!!str" {
		n.Style = text(n.Value).Style
	}
	if len(n.Content) == 0 && n.Kind != yaml.ScalarNode {
		n.Style = yaml.FlowStyle
	}
	for _, c := range n.Content {
		prepare(c)
	}
}
