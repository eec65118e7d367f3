package envoy

import (
	"net/netip"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	preservecasev3 "github.com/envoyproxy/go-control-plane/envoy/extensions/http/header_formatters/preserve_case/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/ashore-mesh/ashore/xds/resource"
)

// Packed wraps a message for a field that takes any, encoded the same way every time.
func Packed(m proto.Message) *anypb.Any {
	return &anypb.Any{TypeUrl: TypeURL(m), Value: resource.Encode(m)}
}

// TypeURL is the type of a message that is wrapped.
func TypeURL(m proto.Message) string {
	return "type.googleapis.com/" + string(m.ProtoReflect().Descriptor().FullName())
}

// Extension names an extension and configures it.
func Extension(name string, config proto.Message) *corev3.TypedExtensionConfig {
	return &corev3.TypedExtensionConfig{Name: name, TypedConfig: Packed(config)}
}

// NetworkFilter is a filter of connections.
func NetworkFilter(name string, config proto.Message) *listenerv3.Filter {
	return &listenerv3.Filter{Name: name, ConfigType: &listenerv3.Filter_TypedConfig{TypedConfig: Packed(config)}}
}

// ListenerFilter is a filter that looks at connections before a filter chain is chosen.
func ListenerFilter(name string, config proto.Message) *listenerv3.ListenerFilter {
	return &listenerv3.ListenerFilter{Name: name,
		ConfigType: &listenerv3.ListenerFilter_TypedConfig{TypedConfig: Packed(config)}}
}

// HTTPFilter is a filter of requests.
func HTTPFilter(name string, config proto.Message) *hcmv3.HttpFilter {
	return &hcmv3.HttpFilter{Name: name, ConfigType: &hcmv3.HttpFilter_TypedConfig{TypedConfig: Packed(config)}}
}

// InlineString is data that is a text.
func InlineString(s string) *corev3.DataSource {
	return &corev3.DataSource{Specifier: &corev3.DataSource_InlineString{InlineString: s}}
}

// KeepHeaderCase leaves the names of HTTP/1 headers as they were written.
// Source: envoyproxy.io, "HTTP/1.1 header casing".
func KeepHeaderCase() *corev3.Http1ProtocolOptions {
	format := Extension("preserve_case", &preservecasev3.PreserveCaseFormatterConfig{})
	return &corev3.Http1ProtocolOptions{HeaderKeyFormat: &corev3.Http1ProtocolOptions_HeaderKeyFormat{
		HeaderFormat: &corev3.Http1ProtocolOptions_HeaderKeyFormat_StatefulFormatter{StatefulFormatter: format}}}
}

// FromADS says that a resource comes by the stream that this one came by.
func FromADS() *corev3.ConfigSource {
	return &corev3.ConfigSource{
		ConfigSourceSpecifier: &corev3.ConfigSource_Ads{Ads: &corev3.AggregatedConfigSource{}},
		ResourceApiVersion:    corev3.ApiVersion_V3,
	}
}

// CidrRange is a prefix as Envoy's.
func CidrRange(p netip.Prefix) *corev3.CidrRange {
	return &corev3.CidrRange{AddressPrefix: p.Addr().String(), PrefixLen: wrapperspb.UInt32(uint32(p.Bits()))}
}
