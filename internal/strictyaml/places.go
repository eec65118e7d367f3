package strictyaml

import (
	"errors"
	"fmt"
	"reflect"
	"strings"

	"go.yaml.in/yaml/v3"
)

// Places holds the lines of the settings in a file. The zero value and nil have no file.
type Places struct {
	file  string
	lines map[string]int // by the path of the setting
}

// Of returns the place of a setting, "a.yaml:3". For a setting that is not in the file it is the
// beginning of its section, or the file, "a.yaml". Empty without a file.
func (p *Places) Of(setting string) string {
	if p == nil {
		return ""
	}
	for at := setting; ; {
		line, i := p.lines[at], strings.LastIndexByte(at, '.')
		if line != 0 || i < 0 {
			return place(p.file, line)
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

// Section decodes a part of a settings file as Decode does: the mapping n of a field of type
// yaml.Node with the given path ("sources[0]"). others are further names that the mapping may have,
// which the caller decodes. The places are added to p.
func (p *Places) Section(path string, n *yaml.Node, into any, others ...string) error {
	p.lines[path] = n.Line
	d := decoder{file: p.file, places: p, others: others}
	d.value(path, n, reflect.ValueOf(into).Elem())
	return errors.Join(d.errs...)
}

// place returns a line of a file, or the file if line is zero.
func place(file string, line int) string {
	if line == 0 {
		return file
	}
	return fmt.Sprintf("%s:%d", file, line)
}
