package settings

import (
	"reflect"

	"go.yaml.in/yaml/v3"
)

// Differences returns the sections, other than sources, in which two settings differ.
func (s *Config) Differences(other Config) []string {
	var out []string
	a, b := reflect.ValueOf(*s), reflect.ValueOf(other)
	for i := range a.NumField() {
		name := a.Type().Field(i).Tag.Get("yaml")
		if name == "" || name == "sources" {
			continue
		}
		if !equal(a.Field(i).Interface(), b.Field(i).Interface()) {
			out = append(out, name)
		}
	}
	return out
}

func equal(a, b any) bool {
	na, isNode := a.(yaml.Node)
	if !isNode {
		return reflect.DeepEqual(a, b)
	}
	nb := b.(yaml.Node)
	return na.IsZero() == nb.IsZero() && (na.IsZero() || canonical(&na) == canonical(&nb))
}

// SourceNames returns the names of sources.
func SourceNames(list []Source) []string {
	out := make([]string, len(list))
	for i, s := range list {
		out[i] = s.Name
	}
	return out
}
