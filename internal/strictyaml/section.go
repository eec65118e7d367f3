package strictyaml

import (
	"errors"
	"reflect"

	"go.yaml.in/yaml/v3"
)

// Section decodes a part of a settings file as Decode does: the mapping n of a field of type
// yaml.Node with the given path ("sources[0]"). others are further names that the mapping may have,
// which the caller decodes. The places are added to p.
func (p *Places) Section(path string, n *yaml.Node, into any, others ...string) error {
	p.lines[path] = n.Line
	d := decoder{file: p.file, places: p, others: others}
	d.value(path, n, reflect.ValueOf(into).Elem())
	return errors.Join(d.errs...)
}
