package listener

import (
	"encoding/json"
	"strings"

	accesslogv3 "github.com/envoyproxy/go-control-plane/envoy/config/accesslog/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	filelogv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/access_loggers/file/v3"
	withoutqueryv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/formatter/req_without_query/v3"
	"google.golang.org/protobuf/types/known/structpb"
	mesh "istio.io/api/mesh/v1alpha1"

	"github.com/ashore-mesh/ashore/xds/gen/envoy"
)

// defaultLogFields are the fields of Istio's default access log, in the order of its text format.
// Source: istio.io, "Envoy Access Logs: default access log format".
func defaultLogFields() []logField {
	return []logField{
		{"start_time", "%START_TIME%", "[%START_TIME%]"},
		{"method", "%REQ(:METHOD)%", `"%REQ(:METHOD)%`},
		{"path", "%REQ(X-ENVOY-ORIGINAL-PATH?:PATH)%", "%REQ(X-ENVOY-ORIGINAL-PATH?:PATH)%"},
		{"protocol", "%PROTOCOL%", `%PROTOCOL%"`},
		{"response_code", "%RESPONSE_CODE%", ""},
		{"response_flags", "%RESPONSE_FLAGS%", ""},
		{"response_code_details", "%RESPONSE_CODE_DETAILS%", ""},
		{"connection_termination_details", "%CONNECTION_TERMINATION_DETAILS%", ""},
		{"upstream_transport_failure_reason", "%UPSTREAM_TRANSPORT_FAILURE_REASON%",
			`"%UPSTREAM_TRANSPORT_FAILURE_REASON%"`},
		{"bytes_received", "%BYTES_RECEIVED%", ""},
		{"bytes_sent", "%BYTES_SENT%", ""},
		{"duration", "%DURATION%", ""},
		{"upstream_service_time", "%RESP(X-ENVOY-UPSTREAM-SERVICE-TIME)%", ""},
		{"x_forwarded_for", "%REQ(X-FORWARDED-FOR)%", `"%REQ(X-FORWARDED-FOR)%"`},
		{"user_agent", "%REQ(USER-AGENT)%", `"%REQ(USER-AGENT)%"`},
		{"request_id", "%REQ(X-REQUEST-ID)%", `"%REQ(X-REQUEST-ID)%"`},
		{"authority", "%REQ(:AUTHORITY)%", `"%REQ(:AUTHORITY)%"`},
		{"upstream_host", "%UPSTREAM_HOST%", `"%UPSTREAM_HOST%"`},
		{"upstream_cluster", "%UPSTREAM_CLUSTER_RAW%", ""},
		{"upstream_local_address", "%UPSTREAM_LOCAL_ADDRESS%", ""},
		{"downstream_local_address", "%DOWNSTREAM_LOCAL_ADDRESS%", ""},
		{"downstream_remote_address", "%DOWNSTREAM_REMOTE_ADDRESS%", ""},
		{"requested_server_name", "%REQUESTED_SERVER_NAME%", ""},
		{"route_name", "%ROUTE_NAME%", ""},
	}
}

// logField is one field of the default log: its name in JSON, its value, and how it stands in text
// (empty: as the value).
type logField struct{ name, value, text string }

// accessLog says what is logged where. Comparable.
type accessLog struct {
	// file is the path; empty: nothing is logged.
	file string
	// format is the operator's; empty: Istio's default.
	format string
	json   bool
}

// accessLogOf reads MeshConfig's accessLogFile, accessLogFormat and accessLogEncoding.
func accessLogOf(m *mesh.MeshConfig) accessLog {
	if m.GetAccessLogFile() == "" {
		return accessLog{}
	}
	return accessLog{
		file:   m.AccessLogFile,
		format: m.AccessLogFormat,
		json:   m.AccessLogEncoding == mesh.MeshConfig_JSON,
	}
}

// build makes the logger, with a filter or nil; none when nothing is logged.
func (l accessLog) build(filter *accesslogv3.AccessLogFilter) []*accesslogv3.AccessLog {
	if l.file == "" {
		return nil
	}
	return []*accesslogv3.AccessLog{{
		Name:   "envoy.access_loggers.file",
		Filter: filter,
		ConfigType: &accesslogv3.AccessLog_TypedConfig{TypedConfig: envoy.Packed(&filelogv3.FileAccessLog{
			Path:            l.file,
			AccessLogFormat: &filelogv3.FileAccessLog_LogFormat{LogFormat: l.substitution()},
		})},
	}}
}

// substitution is the format as Envoy takes it.
func (l accessLog) substitution() *corev3.SubstitutionFormatString {
	s := &corev3.SubstitutionFormatString{Formatters: formatters(l.format)}
	if l.json {
		s.Format = &corev3.SubstitutionFormatString_JsonFormat{JsonFormat: l.jsonFormat()}
		return s
	}
	s.Format = &corev3.SubstitutionFormatString_TextFormatSource{TextFormatSource: envoy.InlineString(l.textFormat())}
	return s
}

// textFormat ends with a newline, without which a file would be one line.
func (l accessLog) textFormat() string {
	if l.format != "" {
		return strings.TrimSuffix(l.format, "\n") + "\n"
	}
	var parts []string
	for _, f := range defaultLogFields() {
		if f.text == "" {
			f.text = f.value
		}
		parts = append(parts, f.text)
	}
	return strings.Join(parts, " ") + "\n"
}

// jsonFormat is the operator's object, or the default when there is none or it is not an object
// (which validation of MeshConfig reports). Source: Istio does the same.
func (l accessLog) jsonFormat() *structpb.Struct {
	if l.format != "" {
		var fields map[string]any
		if err := json.Unmarshal([]byte(l.format), &fields); err == nil {
			if s, err := structpb.NewStruct(fields); err == nil {
				return s
			}
		}
	}
	s := &structpb.Struct{Fields: map[string]*structpb.Value{}}
	for _, f := range defaultLogFields() {
		s.Fields[f.name] = structpb.NewStringValue(f.value)
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
		envoy.Packed(&withoutqueryv3.ReqWithoutQuery{}))}
}

// noChainFilter keeps only connections that no filter chain took: "NR", no route.
func noChainFilter() *accesslogv3.AccessLogFilter {
	return &accesslogv3.AccessLogFilter{FilterSpecifier: &accesslogv3.AccessLogFilter_ResponseFlagFilter{
		ResponseFlagFilter: &accesslogv3.ResponseFlagFilter{Flags: []string{"NR"}},
	}}
}
