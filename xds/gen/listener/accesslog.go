package listener

import (
	"cmp"
	"strings"

	accesslogv3 "github.com/envoyproxy/go-control-plane/envoy/config/accesslog/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	filelogv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/access_loggers/file/v3"
	withoutqueryv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/formatter/req_without_query/v3"
	"google.golang.org/protobuf/types/known/structpb"
	mesh "istio.io/api/mesh/v1alpha1"

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

// accessLogs is the logger of MeshConfig's accessLogFile, with a filter or nil; none without a file.
func accessLogs(m *mesh.MeshConfig, filter *accesslogv3.AccessLogFilter) []*accesslogv3.AccessLog {
	if m.GetAccessLogFile() == "" {
		return nil
	}
	format := &corev3.SubstitutionFormatString{Formatters: formatters(m.AccessLogFormat)}
	if m.AccessLogEncoding == mesh.MeshConfig_JSON {
		format.Format = &corev3.SubstitutionFormatString_JsonFormat{JsonFormat: jsonFormat(m.AccessLogFormat)}
	} else {
		text := envoy.InlineString(textFormat(m.AccessLogFormat))
		format.Format = &corev3.SubstitutionFormatString_TextFormatSource{TextFormatSource: text}
	}
	return []*accesslogv3.AccessLog{{
		Name:   "envoy.access_loggers.file",
		Filter: filter,
		ConfigType: &accesslogv3.AccessLog_TypedConfig{TypedConfig: envoy.Packed(&filelogv3.FileAccessLog{
			Path:            m.AccessLogFile,
			AccessLogFormat: &filelogv3.FileAccessLog_LogFormat{LogFormat: format},
		})},
	}}
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

// noChainFilter keeps only connections that no filter chain took: "NR", no route.
func noChainFilter() *accesslogv3.AccessLogFilter {
	return &accesslogv3.AccessLogFilter{FilterSpecifier: &accesslogv3.AccessLogFilter_ResponseFlagFilter{
		ResponseFlagFilter: &accesslogv3.ResponseFlagFilter{Flags: []string{"NR"}},
	}}
}
