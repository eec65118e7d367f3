package config

import (
	"slices"

	"google.golang.org/protobuf/proto"
)

// present are those of the named fields of m that are set.
func present(m proto.Message, names ...string) []string {
	return slices.DeleteFunc(slices.Clone(names), func(name string) bool { return !isSet(m, name) })
}

// missing are those of the named fields of m that are not set.
func missing(m proto.Message, names ...string) []string {
	return slices.DeleteFunc(names, func(name string) bool { return isSet(m, name) })
}

func isSet(m proto.Message, name string) bool {
	fd := m.ProtoReflect().Descriptor().Fields().ByJSONName(name)
	return m.ProtoReflect().Has(fd) && !(isWrapper(fd.Message()) && isZero(m.ProtoReflect().Get(fd).Message()))
}

// others are the fields of m that are set, but for the named ones.
func others(m proto.Message, names ...string) []string {
	all := fieldNames(m.ProtoReflect().Descriptor().Fields())
	return present(m, slices.DeleteFunc(all, func(name string) bool { return slices.Contains(names, name) })...)
}
