package strictyaml

import (
	"errors"
	"reflect"

	"go.yaml.in/yaml/v3"
)

// Section lays a part of a settings file over into, as Decode does with the whole: the mapping n,
// which a field of type yaml.Node took, and whose path is path ("sources[0]"). others are further
// names that the mapping may have, for who reads it into something else too. The places are added
// to p.
func (p *Places) Section(path string, n *yaml.Node, into any, others ...string) error {
	p.lines[path] = n.Line
	d := decoder{file: p.file, places: p, others: others}
	d.value(path, n, reflect.ValueOf(into).Elem())
	return errors.Join(d.errs...)
}
