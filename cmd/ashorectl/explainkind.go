package main

import (
	_ "embed"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/ashore-mesh/ashore/config"
	"github.com/ashore-mesh/ashore/internal/nearest"
)

// fieldComments has the comments of Istio's API: a line for each message, and below it one for each
// of its fields.
//
//go:embed fieldcomments.txt
var fieldComments string

// explainedKind is a kind, or one of its fields.
type explainedKind struct {
	Kind       string `json:"kind"`
	APIVersion string `json:"apiVersion"`
	explainedField
	// Fields are those of an object, in the order of the API.
	Fields []explainedField `json:"fields,omitempty"`
}

type explainedField struct {
	Name        string `json:"name"`
	Type        string `json:"type"`
	Description string `json:"description,omitempty"`
	// Refused is why ashored does not accept it; empty: it does.
	Refused string `json:"refused,omitempty"`
	// Differs is how it differs from Istio, which Description is about.
	Differs string `json:"differs,omitempty"`
}

// explainKind explains KIND[.FIELD...]. A field may be written with or without spec before it.
func (t *tool) explainKind(cmd *cobra.Command, path string) error {
	parts := strings.Split(path, ".")
	if err := checkKind(cmd, parts[0]); err != nil {
		return err
	}
	info, err := config.KindNamed(parts[0])
	if err != nil {
		return usage(cmd, err)
	}
	message := info.NewSpec().ProtoReflect().Descriptor()
	comments := commentsOf(message.FullName())
	out := explainedKind{Kind: string(info.Kind), APIVersion: info.APIVersion(),
		explainedField: explainedField{Name: "spec", Type: string(message.Name()), Description: comments[""]}}
	if len(parts) > 1 && parts[1] == "spec" {
		parts = parts[1:]
	}
	for _, name := range parts[1:] {
		name, _, _ = strings.Cut(name, "[")
		var fd protoreflect.FieldDescriptor
		if message != nil {
			fd = fieldNamed(message, name)
		}
		if fd == nil {
			return usage(cmd, unknownField(out.Name, message, name))
		}
		path := out.Name + "." + fd.JSONName()
		out.explainedField = explainField(fd, comments)
		out.Name = path
		if message = messageOf(fd); message != nil {
			comments = commentsOf(message.FullName())
		}
	}
	if message != nil {
		for i := range message.Fields().Len() {
			out.Fields = append(out.Fields, explainField(message.Fields().Get(i), comments))
		}
	}
	return t.print(cmd, out, out.text())
}

// commentsOf returns the comments of a message by field; that of the message itself has no name.
func commentsOf(message protoreflect.FullName) map[string]string {
	_, rest, _ := strings.Cut("\n"+fieldComments, "\n"+string(message)+"\t")
	out := map[string]string{}
	for i, line := range strings.Split(rest, "\n") {
		name, text, _ := strings.Cut(line, "\t")
		switch {
		case i == 0:
			out[""] = line
		case !strings.HasPrefix(line, "  "):
			return out
		default:
			out[strings.TrimSpace(name)] = text
		}
	}
	return out
}

func explainField(fd protoreflect.FieldDescriptor, comments map[string]string) explainedField {
	return explainedField{fd.JSONName(), typeName(fd), comments[fd.JSONName()], config.Unsupported(fd),
		config.Difference(fd)}
}

func fieldNamed(m protoreflect.MessageDescriptor, name string) protoreflect.FieldDescriptor {
	if fd := m.Fields().ByJSONName(name); fd != nil {
		return fd
	}
	return m.Fields().ByName(protoreflect.Name(name))
}

func unknownField(parent string, m protoreflect.MessageDescriptor, name string) error {
	if m == nil {
		return fmt.Errorf("%s has no fields", parent)
	}
	var known []string
	for i := range m.Fields().Len() {
		known = append(known, m.Fields().Get(i).JSONName())
	}
	if near := nearest.Name(name, known); near != "" {
		return fmt.Errorf("%s has no field %q: did you mean %q?", parent, name, near)
	}
	return fmt.Errorf("%s has no field %q: it has %s", parent, name, strings.Join(known, ", "))
}

// messageOf returns the message of a field's values; nil if they have no fields of their own.
func messageOf(fd protoreflect.FieldDescriptor) protoreflect.MessageDescriptor {
	if fd.IsMap() {
		fd = fd.MapValue()
	}
	if m := fd.Message(); m != nil && strings.HasPrefix(string(m.FullName()), "istio.") {
		return m
	}
	return nil
}

// typeName returns the type of a field as YAML has it.
func typeName(fd protoreflect.FieldDescriptor) string {
	switch {
	case fd.IsMap():
		return "map[string]" + typeName(fd.MapValue())
	case fd.IsList():
		return "[]" + valueType(fd)
	}
	return valueType(fd)
}

func valueType(fd protoreflect.FieldDescriptor) string {
	switch {
	case fd.Enum() != nil:
		return strings.Join(config.EnumNames(fd.Enum()), "|")
	case fd.Message() != nil:
		name := string(fd.Message().Name())
		if value, ok := strings.CutSuffix(name, "Value"); ok { // google.protobuf.UInt32Value is written as its value
			return strings.ToLower(value)
		}
		return name
	}
	return fd.Kind().String()
}

func (e explainedKind) text() string {
	var b strings.Builder
	fmt.Fprintf(&b, "KIND:   %s (%s)\nFIELD:  %s <%s>\n\n%s", e.Kind, e.APIVersion, e.Name, e.Type, e.description(""))
	if len(e.Fields) > 0 {
		b.WriteString("\nFIELDS:\n")
	}
	for _, f := range e.Fields {
		fmt.Fprintf(&b, "  %s <%s>\n%s", f.Name, f.Type, f.description("    "))
	}
	return b.String()
}

// description returns the lines about a field, each after indent.
func (f explainedField) description(indent string) string {
	text := f.Description
	if f.Differs != "" {
		text = strings.TrimSpace("DIFFERS: " + f.Differs + ". " + text)
	}
	if f.Refused != "" {
		text = strings.TrimSpace("REFUSED: " + f.Refused + ". " + text)
	}
	const width = 96
	var lines []string
	line := ""
	for word := range strings.FieldsSeq(text) {
		if line != "" && len(indent)+len(line)+len(word) >= width {
			lines, line = append(lines, indent+line+"\n"), ""
		}
		line = strings.TrimSpace(line + " " + word)
	}
	if line != "" {
		lines = append(lines, indent+line+"\n")
	}
	return strings.Join(lines, "")
}
