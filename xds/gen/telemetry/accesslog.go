package telemetry

import (
	"cmp"
	"maps"
	"slices"
	"strings"

	accesslogv3 "github.com/envoyproxy/go-control-plane/envoy/config/accesslog/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	filelogv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/access_loggers/file/v3"
	celv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/access_loggers/filters/cel/v3"
	grpclogv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/access_loggers/grpc/v3"
	otellogv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/access_loggers/open_telemetry/v3"
	withoutqueryv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/formatter/req_without_query/v3"
	otlpv1 "go.opentelemetry.io/proto/otlp/common/v1"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/structpb"
	mesh "istio.io/api/mesh/v1alpha1"
	telemetry "istio.io/api/telemetry/v1alpha1"

	"github.com/ashore-mesh/ashore/config"
	"github.com/ashore-mesh/ashore/xds/gen/envoy"
)

// defaultText and defaultJSON are Istio's default formats. Both have the same fields in one order.
// Source: istio.io, "Envoy Access Logs: default access log format".
const (
	defaultText = `[%START_TIME%] "%REQ(:METHOD)% %REQ(X-ENVOY-ORIGINAL-PATH?:PATH)% %PROTOCOL%" %RESPONSE_CODE% ` +
		`%RESPONSE_FLAGS% %RESPONSE_CODE_DETAILS% %CONNECTION_TERMINATION_DETAILS% ` +
		`"%UPSTREAM_TRANSPORT_FAILURE_REASON%" %BYTES_RECEIVED% %BYTES_SENT% %DURATION% ` +
		`%RESP(X-ENVOY-UPSTREAM-SERVICE-TIME)% "%REQ(X-FORWARDED-FOR)%" "%REQ(USER-AGENT)%" "%REQ(X-REQUEST-ID)%" ` +
		`"%REQ(:AUTHORITY)%" "%UPSTREAM_HOST%" %UPSTREAM_CLUSTER_RAW% %UPSTREAM_LOCAL_ADDRESS% ` +
		`%DOWNSTREAM_LOCAL_ADDRESS% %DOWNSTREAM_REMOTE_ADDRESS% %REQUESTED_SERVER_NAME% %ROUTE_NAME%`
	defaultJSON = `{
		"start_time": "%START_TIME%",
		"method": "%REQ(:METHOD)%",
		"path": "%REQ(X-ENVOY-ORIGINAL-PATH?:PATH)%",
		"protocol": "%PROTOCOL%",
		"response_code": "%RESPONSE_CODE%",
		"response_flags": "%RESPONSE_FLAGS%",
		"response_code_details": "%RESPONSE_CODE_DETAILS%",
		"connection_termination_details": "%CONNECTION_TERMINATION_DETAILS%",
		"upstream_transport_failure_reason": "%UPSTREAM_TRANSPORT_FAILURE_REASON%",
		"bytes_received": "%BYTES_RECEIVED%",
		"bytes_sent": "%BYTES_SENT%",
		"duration": "%DURATION%",
		"upstream_service_time": "%RESP(X-ENVOY-UPSTREAM-SERVICE-TIME)%",
		"x_forwarded_for": "%REQ(X-FORWARDED-FOR)%",
		"user_agent": "%REQ(USER-AGENT)%",
		"request_id": "%REQ(X-REQUEST-ID)%",
		"authority": "%REQ(:AUTHORITY)%",
		"upstream_host": "%UPSTREAM_HOST%",
		"upstream_cluster": "%UPSTREAM_CLUSTER_RAW%",
		"upstream_local_address": "%UPSTREAM_LOCAL_ADDRESS%",
		"downstream_local_address": "%DOWNSTREAM_LOCAL_ADDRESS%",
		"downstream_remote_address": "%DOWNSTREAM_REMOTE_ADDRESS%",
		"requested_server_name": "%REQUESTED_SERVER_NAME%",
		"route_name": "%ROUTE_NAME%"
	}`
)

// accessLog is a logger before its place is known.
type accessLog struct {
	name   string
	config proto.Message
	// filter is an expression of CEL; empty: everything is logged.
	filter string
	// cluster is where it sends its entries; empty: it writes to a file.
	cluster string
	// requests and connections are what it is for.
	requests, connections bool
}

// at returns the logger in a place that limits it, or not: nil.
func (l accessLog) at(place *accesslogv3.AccessLogFilter) *accesslogv3.AccessLog {
	out := &accesslogv3.AccessLog{Name: l.name, Filter: place,
		ConfigType: &accesslogv3.AccessLog_TypedConfig{TypedConfig: envoy.Packed(l.config)}}
	if l.filter == "" {
		return out
	}
	chosen := &accesslogv3.AccessLogFilter{FilterSpecifier: &accesslogv3.AccessLogFilter_ExtensionFilter{
		ExtensionFilter: &accesslogv3.ExtensionFilter{Name: "envoy.access_loggers.extension_filters.cel",
			ConfigType: &accesslogv3.ExtensionFilter_TypedConfig{
				TypedConfig: envoy.Packed(&celv3.ExpressionFilter{Expression: l.filter})}},
	}}
	if out.Filter = chosen; place != nil {
		out.Filter = &accesslogv3.AccessLogFilter{FilterSpecifier: &accesslogv3.AccessLogFilter_AndFilter{
			AndFilter: &accesslogv3.AndFilter{Filters: []*accesslogv3.AccessLogFilter{place, chosen}},
		}}
	}
	return out
}

// accessLogs returns the access logs of a side: those of the providers that Telemetry objects or
// the mesh's defaults name, or else MeshConfig's accessLogFile.
func (s Settings) accessLogs(by Reporter) []accessLog {
	m := s.mesh.Config
	defaults := m.GetDefaultProviders().GetAccessLogging()
	var levels [][]*telemetry.AccessLogging
	for _, spec := range s.specs() {
		levels = append(levels, spec.AccessLogging)
	}
	if len(slices.Concat(levels...)) == 0 {
		levels = [][]*telemetry.AccessLogging{{{}}} // the defaults
		if len(defaults) == 0 && m.GetAccessLogFile() != "" {
			return []accessLog{fileLog(m.AccessLogFile, meshFormat(m))}
		}
	}
	filters := map[string]string{} // of each provider in use
	eachEntry(levels, defaults, func(e *telemetry.AccessLogging, provider string) {
		switch {
		case !by.matches(e.GetMatch().GetMode()):
		case e.GetDisabled().GetValue():
			delete(filters, provider)
		default:
			filters[provider] = e.GetFilter().GetExpression()
		}
	})
	var out []accessLog
	for _, p := range m.GetExtensionProviders() {
		filter, used := filters[p.Name]
		l, known := s.accessLog(p)
		if l.filter = filter; used && known {
			out = append(out, l)
		}
	}
	return out
}

// accessLog returns the access log of a provider, if it is one that the proxy can reach.
func (s Settings) accessLog(p *mesh.MeshConfig_ExtensionProvider) (out accessLog, known bool) {
	if f := p.GetEnvoyFileAccessLog(); f != nil {
		path, format := cmp.Or(f.Path, "/dev/stdout"), fileFormat(f)
		if p.Name == config.EnvoyProvider && f.LogFormat == nil && !f.OmitEmptyValues {
			format = meshFormat(s.mesh.Config)
		}
		return fileLog(path, format), true
	}
	to, known := s.serviceOf(p)
	if !known {
		return accessLog{}, false
	}
	switch {
	case p.GetEnvoyHttpAls() != nil:
		als := p.GetEnvoyHttpAls()
		common := to.accessLogService(cmp.Or(als.LogName, "http_envoy_accesslog"), als.FilterStateObjectsToLog)
		out = accessLog{name: "envoy.access_loggers.http_grpc", requests: true,
			config: &grpclogv3.HttpGrpcAccessLogConfig{
				CommonConfig:                    common,
				AdditionalRequestHeadersToLog:   als.AdditionalRequestHeadersToLog,
				AdditionalResponseHeadersToLog:  als.AdditionalResponseHeadersToLog,
				AdditionalResponseTrailersToLog: als.AdditionalResponseTrailersToLog,
			}}
	case p.GetEnvoyTcpAls() != nil:
		als := p.GetEnvoyTcpAls()
		common := to.accessLogService(cmp.Or(als.LogName, "tcp_envoy_accesslog"), als.FilterStateObjectsToLog)
		out = accessLog{name: "envoy.access_loggers.tcp_grpc", connections: true,
			config: &grpclogv3.TcpGrpcAccessLogConfig{CommonConfig: common}}
	case p.GetEnvoyOtelAls() != nil:
		out = accessLog{name: "envoy.access_loggers.open_telemetry", requests: true, connections: true,
			config: to.openTelemetryLog(p.GetEnvoyOtelAls())}
	default:
		return accessLog{}, false
	}
	out.cluster = to.cluster()
	return out, true
}

// accessLogService sends entries to Envoy's access log service. Source: Istio for the names of logs.
func (s service) accessLogService(name string, filterState []string) *grpclogv3.CommonGrpcAccessLogConfig {
	return &grpclogv3.CommonGrpcAccessLogConfig{LogName: name, GrpcService: s.grpc(),
		TransportApiVersion: corev3.ApiVersion_V3, FilterStateObjectsToLog: filterState}
}

// openTelemetryLog sends entries to an OpenTelemetry collector.
func (s service) openTelemetryLog(p *mesh.MeshConfig_ExtensionProvider_EnvoyOpenTelemetryLogProvider) proto.Message {
	text := cmp.Or(p.GetLogFormat().GetText(), defaultText)
	out := &otellogv3.OpenTelemetryAccessLogConfig{
		GrpcService: s.grpc(), LogName: cmp.Or(p.LogName, "otel_envoy_accesslog"), DisableBuiltinLabels: true,
		ResourceDetectors: resourceDetectors(), Body: textValue(text),
	}
	labels := p.GetLogFormat().GetLabels().GetFields()
	for _, name := range slices.Sorted(maps.Keys(labels)) {
		if out.Attributes == nil {
			out.Attributes = &otlpv1.KeyValueList{}
		}
		value := labels[name].GetStringValue()
		out.Attributes.Values = append(out.Attributes.Values, &otlpv1.KeyValue{Key: name, Value: textValue(value)})
		text += value
	}
	out.Formatters = formatters(text)
	return out
}

func textValue(text string) *otlpv1.AnyValue {
	return &otlpv1.AnyValue{Value: &otlpv1.AnyValue_StringValue{StringValue: text}}
}

// fileLog writes to a file.
func fileLog(path string, format *corev3.SubstitutionFormatString) accessLog {
	return accessLog{name: "envoy.access_loggers.file", requests: true, connections: true,
		config: &filelogv3.FileAccessLog{Path: path,
			AccessLogFormat: &filelogv3.FileAccessLog_LogFormat{LogFormat: format}}}
}

// meshFormat is the format of MeshConfig's accessLogFormat and accessLogEncoding.
func meshFormat(m *mesh.MeshConfig) *corev3.SubstitutionFormatString {
	if m.AccessLogEncoding == mesh.MeshConfig_JSON {
		return &corev3.SubstitutionFormatString{Formatters: formatters(m.AccessLogFormat),
			Format: &corev3.SubstitutionFormatString_JsonFormat{JsonFormat: jsonFormat(m.AccessLogFormat)}}
	}
	return asText(m.AccessLogFormat)
}

// fileFormat is the format of a provider. Labels without any are those of the default.
func fileFormat(p *mesh.MeshConfig_ExtensionProvider_EnvoyFileAccessLogProvider) *corev3.SubstitutionFormatString {
	out := asText(p.GetLogFormat().GetText())
	if labels := p.GetLogFormat().GetLabels(); labels != nil {
		if len(labels.Fields) == 0 {
			labels = jsonFormat("")
		}
		out = &corev3.SubstitutionFormatString{Formatters: formatters(labels.String()),
			Format: &corev3.SubstitutionFormatString_JsonFormat{JsonFormat: labels}}
	}
	out.OmitEmptyValues = p.OmitEmptyValues
	return out
}

// asText is a format of text; empty: the default.
func asText(format string) *corev3.SubstitutionFormatString {
	return &corev3.SubstitutionFormatString{Formatters: formatters(format),
		Format: &corev3.SubstitutionFormatString_TextFormatSource{
			TextFormatSource: envoy.InlineString(textFormat(format))}}
}

// textFormat is the operator's format, or the default. It ends with a newline, without which a file
// would be one line.
func textFormat(format string) string {
	return strings.TrimSuffix(cmp.Or(format, defaultText), "\n") + "\n"
}

// jsonFormat is the operator's object, or the default when there is none or it is not an object
// (which validation of MeshConfig reports). Source: Istio does the same.
func jsonFormat(format string) *structpb.Struct {
	s := &structpb.Struct{}
	if format == "" || s.UnmarshalJSON([]byte(format)) != nil {
		s.Reset()
		if err := s.UnmarshalJSON([]byte(defaultJSON)); err != nil {
			panic(err) // a constant
		}
	}
	return s
}

// formatters are the extensions that commands in a format need beyond Envoy's own; those for
// METADATA and CEL are built in. Source: envoyproxy.io, "Access logging: format extensions".
func formatters(format string) []*corev3.TypedExtensionConfig {
	if !strings.Contains(format, "%REQ_WITHOUT_QUERY") {
		return nil
	}
	return []*corev3.TypedExtensionConfig{envoy.Extension("envoy.formatter.req_without_query",
		&withoutqueryv3.ReqWithoutQuery{})}
}

// noChain limits a logger to connections that no filter chain took: "NR", no route.
func noChain() *accesslogv3.AccessLogFilter {
	return &accesslogv3.AccessLogFilter{FilterSpecifier: &accesslogv3.AccessLogFilter_ResponseFlagFilter{
		ResponseFlagFilter: &accesslogv3.ResponseFlagFilter{Flags: []string{"NR"}},
	}}
}
