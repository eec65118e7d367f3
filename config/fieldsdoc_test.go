package config

import (
	"fmt"
	"strings"

	"google.golang.org/protobuf/reflect/protoreflect"
)

// fieldRow is a line of the page: a field, or a value of it that is refused.
type fieldRow struct {
	path, status, note string
}

// The statuses of a field of an object. Those of MeshConfig are in meshfields.go.
const (
	enforced  = "enforced"
	different = "enforced, differs"
	noEffect  = "no effect"
	isRefused = "refused"
)

// fieldPages lists the fields of every kind. The fields of a message are listed once.
type fieldPages struct {
	kind  Kind
	where map[protoreflect.FullName]string // of a message: where its fields are listed
	rows  []fieldRow                       // of the current kind
}

func fieldsDoc() string {
	var summary, exceptions, kinds strings.Builder
	p := fieldPages{where: map[protoreflect.FullName]string{}}
	for _, k := range Kinds() {
		anchor := fmt.Sprintf("[%s](#%s)", k.Kind, strings.ToLower(string(k.Kind)))
		if !k.Supported {
			fmt.Fprintf(&summary, "| %s | refused: %s | | |\n", k.Kind, k.without)
			continue
		}
		p.kind, p.rows = k.Kind, nil
		p.fields("", k.NewSpec().ProtoReflect().Descriptor())
		fmt.Fprintf(&kinds, "\n## %s\n\n`%s`\n\n| Field | Status | Notes |\n| --- | --- | --- |\n", k.Kind, k.APIVersion())
		count := map[string]int{}
		for _, r := range p.rows {
			count[r.status]++
			kinds.WriteString("| " + r.text())
			if r.status != enforced {
				fmt.Fprintf(&exceptions, "| %s | %s", k.Kind, r.text())
			}
		}
		fmt.Fprintf(&summary, "| %s | %d | %d | %d |\n", anchor, count[enforced]+count[different], count[noEffect], count[isRefused])
	}
	return fieldsHead + summary.String() + exceptionsHead + exceptions.String() + kinds.String()
}

func (r fieldRow) text() string {
	note := strings.ReplaceAll(r.note, "*", `\*`)
	if note != "" {
		note = strings.ToUpper(note[:1]) + note[1:]
	}
	return fmt.Sprintf("`%s` | %s | %s |\n", r.path, r.status, note)
}

// fields adds the fields of a message at path.
func (p *fieldPages) fields(path string, m protoreflect.MessageDescriptor) {
	for i := range m.Fields().Len() {
		p.field(m.Fields().Get(i), path)
	}
}

// field adds a field, with the fields or the refused values below it.
func (p *fieldPages) field(fd protoreflect.FieldDescriptor, parent string) {
	row := fieldRow{path: below(parent, fd.JSONName()), status: enforced}
	value := fd
	switch {
	case fd.IsMap():
		row.path, value = row.path+"[KEY]", fd.MapValue()
	case fd.IsList():
		row.path += "[]"
	}
	what, todo := unsupportedField(fd)
	switch {
	case what != "":
		row.status, row.note = isRefused, what+": "+todo
	case withoutEffect(fd) != "":
		row.status, row.note = noEffect, withoutEffect(fd)
	case Difference(fd) != "":
		row.status, row.note = different, Difference(fd)
	}
	m := value.Message()
	hasFields := m != nil && strings.HasPrefix(string(m.FullName()), "istio.") && row.status != isRefused && row.status != noEffect
	if hasFields && p.where[m.FullName()] != "" {
		row.note = strings.TrimPrefix(row.note+"; with the fields of "+p.where[m.FullName()], "; ")
		hasFields = false
	}
	p.rows = append(p.rows, row)
	switch {
	case hasFields:
		p.where[m.FullName()] = fmt.Sprintf("%s `%s`", p.kind, row.path)
		p.fields(row.path, m)
	case value.Enum() != nil:
		p.values(row.path, value.Enum().Values())
	}
}

// values adds the values that are refused.
func (p *fieldPages) values(path string, values protoreflect.EnumValueDescriptors) {
	for i := range values.Len() {
		if what, todo := unsupportedValue(values.Get(i)); what != "" {
			p.rows = append(p.rows, fieldRow{path + ": " + string(values.Get(i).Name()), isRefused, what + ": " + todo})
		}
	}
}

const fieldsHead = `# Kinds and fields of Istio's API

This page lists the status of every kind and field. It is generated from the tables that validate objects.
[MeshConfig](meshconfig.md) has a page of its own. [What differs from Istio](istio-differences.md) has differences that
are not about a single field.

| Status | Meaning |
| --- | --- |
| enforced | does what Istio's documentation says |
| enforced, differs | works, and differs in a detail |
| no effect | is accepted with a warning |
| refused | the object is invalid: the error names file, line, field and what to write instead |

` + "`ashorectl explain virtualservice.http.retries`" + ` shows the documentation of a field.

| Kind | Fields enforced | no effect | refused |
| --- | --- | --- | --- |
`

const exceptionsHead = `
## All exceptions

| Kind | Field | Status | Notes |
| --- | --- | --- | --- |
`
