package config

import (
	"strings"
	"testing"
)

// What Envoy 1.40 itself said about each of these, in the format of an access log.
func TestFormat(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ format, why string }{
		{"", ""},
		{"plain", ""},
		{"%%", ""},
		{"100%%!", ""},
		{"%PROTOCOL%", ""},
		{"[%START_TIME%] %START_TIME(%s)% %REQ(:METHOD)% %REQ(X-ENVOY-ORIGINAL-PATH?:PATH):10%", ""},
		{"%GRPC_STATUS%%GRPC_STATUS(CAMEL_STRING)%", ""},
		{"%PATH(WQ)%", ""},
		{"%METADATA(ROUTE:a:b)%", ""},
		{"%UPSTREAM_METADATA(istio:workload)%", ""},
		{"%FILTER_STATE(a:PLAIN)%", ""},
		{"%COMMON_DURATION(DS_RX_BEG:DS_RX_END:ms)%", ""},
		{"100%", "a single % begins a command"},
		{"% %", "a single % begins a command"},
		{"%protocol%", "a single % begins a command"},
		{"%PROTOCOL", "has no end"},
		{"%REQ(a", "have no end"},
		{"%REQ(a)", "have no end"},
		{"%REQ%", "needs arguments"},
		{"%REQ()%", "needs arguments"},
		{"%PROTOCOL(x)%", "takes no arguments"},
		{"%PROTOCOL:3%", "takes no arguments"},
		{"%NOPE%", "no command"},
		{"%PROTOCL%", `did you mean "PROTOCOL"?`},
		{"%GRPC_STATUS(X)%", "begin with one of"},
		{"%METADATA(x)%", "begin with one of"},
		{"%QUERY_PARAMS(OR)%", "begin with one of"},
	} {
		got := checkFormat(c.format)
		if (got == "") != (c.why == "") || !strings.Contains(got, c.why) {
			t.Errorf("checkFormat(%q) = %q, want %q in it", c.format, got, c.why)
		}
	}
}
