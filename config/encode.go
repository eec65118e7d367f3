package config

import (
	"bytes"
	"encoding/json"
	"fmt"
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

// objectDocument is an object as operators write it.
type objectDocument struct {
	APIVersion string          `json:"apiVersion"`
	Kind       Kind            `json:"kind"`
	Metadata   objectMetadata  `json:"metadata"`
	Spec       json.RawMessage `json:"spec"`
}

type objectMetadata struct {
	Name        string            `json:"name"`
	Namespace   string            `json:"namespace"`
	Created     time.Time         `json:"creationTimestamp,omitzero"`
	Labels      map[string]string `json:"labels,omitempty"`
	Annotations map[string]string `json:"annotations,omitempty"`
}

// documentOf is the tree of one object.
func documentOf(o *Object) (*yaml.Node, error) {
	info, ok := Info(o.Kind)
	if !ok {
		return nil, fmt.Errorf("unknown kind %q", o.Kind)
	}
	spec, err := protojson.Marshal(o.Spec)
	if err != nil {
		return nil, err
	}
	body, err := json.Marshal(objectDocument{info.APIVersion(), o.Kind,
		objectMetadata{o.Name, o.Namespace, o.Created.UTC(), o.Labels, o.Annotations}, spec})
	if err != nil {
		return nil, err
	}
	return nodeOf(body)
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
	// Block style would lose some blanks and line ends.
	if s := n.Value; n.Tag == "!!str" && (strings.TrimSpace(s) != s || s == "<<" ||
		strings.ContainsFunc(s, func(r rune) bool { return r < ' ' || r > '~' })) {
		n.Style = yaml.DoubleQuotedStyle
	}
	if len(n.Content) == 0 && n.Kind != yaml.ScalarNode {
		n.Style = yaml.FlowStyle
	}
	for _, c := range n.Content {
		prepare(c)
	}
}
