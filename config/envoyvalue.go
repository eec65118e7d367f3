package config

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
	"google.golang.org/protobuf/types/descriptorpb"
	"google.golang.org/protobuf/types/dynamicpb"
	"google.golang.org/protobuf/types/known/structpb"
	networking "istio.io/api/networking/v1alpha3"

	"github.com/ashore-mesh/ashore/internal/feed"
)

// patchType is the type of Envoy's message that a patch has, by what it applies to.
// Source: Istio, pkg/config/xds.BuildXDSObjectFromStruct.
func patchType(to networking.EnvoyFilter_ApplyTo) protoreflect.FullName {
	switch to {
	case networking.EnvoyFilter_LISTENER:
		return "envoy.config.listener.v3.Listener"
	case networking.EnvoyFilter_LISTENER_FILTER:
		return "envoy.config.listener.v3.ListenerFilter"
	case networking.EnvoyFilter_FILTER_CHAIN:
		return "envoy.config.listener.v3.FilterChain"
	case networking.EnvoyFilter_NETWORK_FILTER:
		return "envoy.config.listener.v3.Filter"
	case networking.EnvoyFilter_HTTP_FILTER:
		return "envoy.extensions.filters.network.http_connection_manager.v3.HttpFilter"
	case networking.EnvoyFilter_ROUTE_CONFIGURATION:
		return "envoy.config.route.v3.RouteConfiguration"
	case networking.EnvoyFilter_VIRTUAL_HOST:
		return "envoy.config.route.v3.VirtualHost"
	case networking.EnvoyFilter_HTTP_ROUTE:
		return "envoy.config.route.v3.Route"
	case networking.EnvoyFilter_CLUSTER:
		return "envoy.config.cluster.v3.Cluster"
	}
	return "envoy.config.core.v3.TypedExtensionConfig"
}

// PatchValue returns Envoy's message that a patch has. Errors: it is not one. The messages are those
// that the program links (package xds/envoytypes); this package names none of them.
func PatchValue(p *networking.EnvoyFilter_EnvoyConfigObjectPatch) (proto.Message, error) {
	t, err := protoregistry.GlobalTypes.FindMessageByName(patchType(p.ApplyTo))
	if err != nil {
		return nil, fmt.Errorf("this program does not know Envoy's messages: %w", err)
	}
	m := t.New().Interface()
	return m, readJSON(p.GetPatch().GetValue(), m)
}

// readJSON reads the fields of m.
func readJSON(fields *structpb.Struct, m proto.Message) error {
	text, err := protojson.Marshal(inSeconds(m.ProtoReflect().Descriptor(), fields))
	if err != nil {
		return err
	}
	if err := protojson.Unmarshal(text, m); err != nil {
		if _, why, ok := strings.Cut(err.Error(), "): "); ok { // what is before is a place in text
			return errors.New(why)
		}
		return err
	}
	return nil
}

// inSeconds returns the fields of a message with durations in seconds, as protobuf reads them. Istio
// reads other units too, such as 500ms.
func inSeconds(md protoreflect.MessageDescriptor, fields *structpb.Struct) *structpb.Struct {
	out := &structpb.Struct{Fields: maps.Clone(fields.GetFields())}
	if md.FullName() == "google.protobuf.Any" {
		t, err := protoregistry.GlobalTypes.FindMessageByURL(fields.GetFields()["@type"].GetStringValue())
		if err != nil {
			return fields
		}
		md = t.Descriptor()
	}
	for name, v := range out.Fields {
		fd := md.Fields().ByJSONName(name)
		if fd == nil {
			fd = md.Fields().ByName(protoreflect.Name(name))
		}
		switch {
		case fd == nil:
		case fd.IsMap():
			entries := &structpb.Struct{Fields: maps.Clone(v.GetStructValue().GetFields())}
			for key, item := range entries.Fields {
				entries.Fields[key] = valueInSeconds(fd.MapValue().Message(), item)
			}
			if v.GetStructValue() != nil {
				out.Fields[name] = structpb.NewStructValue(entries)
			}
		case fd.IsList() && v.GetListValue() != nil:
			list := &structpb.ListValue{}
			for _, item := range v.GetListValue().Values {
				list.Values = append(list.Values, valueInSeconds(fd.Message(), item))
			}
			out.Fields[name] = structpb.NewListValue(list)
		default:
			out.Fields[name] = valueInSeconds(fd.Message(), v)
		}
	}
	return out
}

// valueInSeconds is inSeconds for a single value. md is nil if it is not a message.
func valueInSeconds(md protoreflect.MessageDescriptor, v *structpb.Value) *structpb.Value {
	switch {
	case md == nil:
	case isDuration(md):
		if d, err := time.ParseDuration(v.GetStringValue()); err == nil {
			return structpb.NewStringValue(strconv.FormatFloat(d.Seconds(), 'f', 9, 64) + "s")
		}
	case v.GetStructValue() != nil && !isPlain(md):
		return structpb.NewStructValue(inSeconds(md, v.GetStructValue()))
	}
	return v
}

// patchValue checks the value of a patch. Each problem has the path of its field.
func (c *checker) patchValue(path string, p *networking.EnvoyFilter_EnvoyConfigObjectPatch) {
	if p.Patch.Value == nil {
		return
	}
	before := len(c.problems)
	if t, err := protoregistry.GlobalTypes.FindMessageByName(patchType(p.ApplyTo)); err == nil {
		v := envoyValue{checker: c, partial: PatchMerges(p.Patch.Operation)}
		v.message(path, t.Descriptor(), p.Patch.Value)
	}
	if feed.Errors(c.problems[before:]) > 0 {
		return
	}
	if _, err := PatchValue(p); err != nil {
		c.errorf(path, "not a value for %s: %v", p.ApplyTo, err)
	}
}

// envoyValue checks a value that is to become a message of Envoy's.
type envoyValue struct {
	*checker
	partial bool // the value is merged into another one
}

// message checks the fields of a message.
func (v envoyValue) message(path string, md protoreflect.MessageDescriptor, fields *structpb.Struct) {
	for _, name := range slices.Sorted(maps.Keys(fields.GetFields())) {
		fd := md.Fields().ByJSONName(name)
		if fd == nil {
			fd = md.Fields().ByName(protoreflect.Name(name))
		}
		at := below(path, name)
		switch {
		case len(v.problems) >= MaxProblems:
			return
		case fd == nil:
			v.errorf(at, "unknown field %s of %s%s", quote(name), md.FullName(), didYouMean(name, protoNames(md)))
		default:
			if o, ok := fd.Options().(*descriptorpb.FieldOptions); ok && o.GetDeprecated() {
				v.warnf(at, "this field of %s is deprecated", md.FullName())
			}
			v.field(at, fd, fields.Fields[name])
		}
	}
	typed := md.Fields().ByName("typed_config")
	if typed != nil && !v.partial && !slices.ContainsFunc([]string{"typed_config", "typedConfig", "config_discovery",
		"configDiscovery"}, func(name string) bool { return fields.GetFields()[name] != nil }) {
		v.warnf(path, "typed_config is missing: Envoy does not find extensions by name alone")
	}
}

// protoNames are the fields of a message as Envoy's documentation writes them.
func protoNames(md protoreflect.MessageDescriptor) []string {
	names := make([]string, md.Fields().Len())
	for i := range names {
		names[i] = string(md.Fields().Get(i).Name())
	}
	return names
}

// field checks the value of a field.
func (v envoyValue) field(path string, fd protoreflect.FieldDescriptor, value *structpb.Value) {
	md, entries := fd.Message(), value.GetStructValue()
	if fd.IsMap() {
		md = fd.MapValue().Message()
	}
	switch {
	case md == nil || isPlain(md):
		v.plain(path, fd, value)
	case fd.IsMap() && entries != nil:
		for _, key := range slices.Sorted(maps.Keys(entries.Fields)) {
			v.single(entry(path, shorten(key)), fd, md, entries.Fields[key])
		}
	case fd.IsList() && value.GetListValue() != nil:
		for i, item := range value.GetListValue().Values {
			v.single(at(path, i), fd, md, item)
		}
	default:
		v.single(path, fd, md, value)
	}
}

// isPlain reports whether a message is written in a form of its own, such as a duration.
func isPlain(md protoreflect.MessageDescriptor) bool {
	return md.ParentFile().Package() == "google.protobuf" && md.Name() != "Any"
}

// single checks a message at a field, in a list or in a map.
func (v envoyValue) single(path string, fd protoreflect.FieldDescriptor, md protoreflect.MessageDescriptor,
	value *structpb.Value) {
	fields := value.GetStructValue()
	switch {
	case fields == nil:
		v.errorf(path, "want an object with fields of %s", md.FullName())
	case md.FullName() == "google.protobuf.Any":
		v.typed(path, fields)
	default:
		v.message(path, md, fields)
	}
}

// typed checks a message that names its type.
func (v envoyValue) typed(path string, fields *structpb.Struct) {
	name := fields.GetFields()["@type"].GetStringValue()
	t, err := protoregistry.GlobalTypes.FindMessageByURL(name)
	switch {
	case name == "":
		v.errorf(path, `"@type" is missing: write the type, type.googleapis.com/…`)
	case err != nil && strings.Contains(name, ".v2"):
		v.errorf(path+".@type", "unknown type %s: Envoy has v3 instead of v2", quote(name))
	case err != nil:
		v.errorf(path+".@type", "unknown type %s: a stock Envoy does not have it", quote(name))
	case !isPlain(t.Descriptor()):
		rest := &structpb.Struct{Fields: maps.Clone(fields.Fields)}
		delete(rest.Fields, "@type")
		v.message(path, t.Descriptor(), rest)
	}
}

// plain checks a value that has no fields of its own.
func (v envoyValue) plain(path string, fd protoreflect.FieldDescriptor, value *structpb.Value) {
	alone := &structpb.Struct{Fields: map[string]*structpb.Value{fd.JSONName(): value}}
	if err := readJSON(alone, dynamicpb.NewMessage(fd.ContainingMessage())); err != nil {
		v.errorf(path, "%v", err)
	}
}
