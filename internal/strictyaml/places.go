package strictyaml

import (
	"errors"
	"fmt"
	"reflect"
	"strings"

	"go.yaml.in/yaml/v3"
)

// Places holds where the settings were read. The zero value and nil have no file.
type Places struct {
	file string
	at   map[string]string // by the path of the setting: "a.yaml:3", or the flag that set it
}

// Of returns the place of a setting, "a.yaml:3" or "--set". For a setting that was not read it is
// the place of its section, or the file, "a.yaml". Empty without a file.
func (p *Places) Of(setting string) string {
	if p == nil {
		return ""
	}
	for at := setting; ; {
		if place := p.at[at]; place != "" {
			return place
		}
		i := strings.LastIndexByte(at, '.')
		if i < 0 {
			return p.file
		}
		at = at[:i]
	}
}

// File returns the name of the file. Empty without one.
func (p *Places) File() string {
	if p == nil {
		return ""
	}
	return p.file
}

// Section decodes a part of a settings file as Decode does: the mapping n, which was in a field of
// type yaml.Node, with the given path ("sources[0]"). Its settings are those of all structs that into
// points to. The places are added to p.
func (p *Places) Section(path string, n *yaml.Node, into ...any) error {
	if p.at == nil {
		p.at = map[string]string{}
	}
	p.at[path] = place(p.file, n.Line)
	d := decoder{file: p.file, places: p}
	var structs []reflect.Value
	for _, v := range into {
		structs = append(structs, reflect.ValueOf(v).Elem())
	}
	d.section(path, n, structs...)
	return errors.Join(d.errs...)
}

// Set decodes one setting, value in YAML, into a pointer to a struct as Decode does. flag is its
// place, "--set".
func (p *Places) Set(flag, setting, value string, into any) error {
	doc := ""
	for depth, name := range strings.Split(setting, ".") {
		doc += "\n" + strings.Repeat(" ", depth) + name + ":"
	}
	_, err := Decode(flag, []byte(doc+" "+value), into) // a field of type yaml.Node is merged
	if wrong, ok := errors.AsType[*Error](err); ok {
		wrong.Line = 0
	}
	if p.at == nil {
		p.at = map[string]string{}
	}
	p.at[setting] = flag
	return err
}

// place returns a line of a file, or the file if line is zero.
func place(file string, line int) string {
	if line == 0 {
		return file
	}
	return fmt.Sprintf("%s:%d", file, line)
}
