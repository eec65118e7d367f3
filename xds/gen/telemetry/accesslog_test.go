package telemetry

import (
	"testing"

	mesh "istio.io/api/mesh/v1alpha1"

	"github.com/ashore-mesh/ashore/push"
)

func TestAccessLogFormat(t *testing.T) {
	t.Parallel()
	// Istio's documentation, "Envoy Access Logs".
	const byDefault = `[%START_TIME%] "%REQ(:METHOD)% %REQ(X-ENVOY-ORIGINAL-PATH?:PATH)% %PROTOCOL%" %RESPONSE_CODE% %RESPONSE_FLAGS% ` +
		`%RESPONSE_CODE_DETAILS% %CONNECTION_TERMINATION_DETAILS% "%UPSTREAM_TRANSPORT_FAILURE_REASON%" %BYTES_RECEIVED% %BYTES_SENT% ` +
		`%DURATION% %RESP(X-ENVOY-UPSTREAM-SERVICE-TIME)% "%REQ(X-FORWARDED-FOR)%" "%REQ(USER-AGENT)%" "%REQ(X-REQUEST-ID)%" ` +
		`"%REQ(:AUTHORITY)%" "%UPSTREAM_HOST%" %UPSTREAM_CLUSTER_RAW% %UPSTREAM_LOCAL_ADDRESS% %DOWNSTREAM_LOCAL_ADDRESS% ` +
		`%DOWNSTREAM_REMOTE_ADDRESS% %REQUESTED_SERVER_NAME% %ROUTE_NAME%` + "\n"
	for format, want := range map[string]string{"": byDefault, "%DURATION%": "%DURATION%\n",
		"%DURATION%\n": "%DURATION%\n"} {
		if got := textFormat(format); got != want {
			t.Errorf("format %q: got %q, want %q", format, got, want)
		}
	}
	for format, want := range map[string]string{"": "method", `{"a": "%DURATION%"}`: "a",
		`["not an object"]`: "method"} {
		if got := jsonFormat(format).Fields; got[want] == nil {
			t.Errorf("JSON format %q: no field %s in %v", format, want, got)
		}
	}
	without := Settings{mesh: &push.Mesh{Config: &mesh.MeshConfig{AccessLogFormat: "x"}}}
	if got := without.accessLogs(Source); got != nil {
		t.Errorf("without a file: got %v, want nothing to be logged", got)
	}
}
