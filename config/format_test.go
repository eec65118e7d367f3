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
		{"%GRPC_STATUS(X)%", "is one of"},
		{"%METADATA(x)%", "is one of"},
		{"%QUERY_PARAMS(OR)%", "is one of"},
		{"%QUERY_PARAMS(ORIG:x)%", "is one of"},
		{"%QUERY_PARAMS(ORIG):5%", ""},
		{"%GRPC_STATUS(NUMBER:x)%", "is one of"},
		{"%GRPC_STATUS(NUMBER):5%", "takes no length"},
		{"%PATH(WQ:ORIG_OR_PATH)%", ""},
		{"%PATH(WQ:ORIG:x):5%", ""},
		{"%PATH(WQ:x)%", "is one of"},
		{"%REQ(a?)%%REQ(?b)%%RESP(A_B.c?:b):0%", ""},
		{"%REQ(a?b?c)%", "one that stands in for it"},
		{"%TRAILER(a?b?c)%", "one that stands in for it"},
		{"%RESPONSE_TRAILER(a?b?c)%", "one that stands in for it"},
		{"%REQ(a:b)%", "not the name of a header"},
		{"%REQUEST_HEADER(a b)%", "not the name of a header"},
		{"%RESPONSE_HEADER(:)%", "not the name of a header"},
		{"%REQ(ä)%", "not the name of a header"},
		{"%REQ(a):999999999%", ""},
		{"%REQ(a):99999999999999999999%", "at most 9 digits"},
		{"%REQ(a):%", "at most 9 digits"},
		{"%START_TIME:5%", "takes no length"},
		{"%START_TIME():5%", "takes no length"},
		{"%UPSTREAM_METADATA(a):5%", "takes no length"},
		{"%FILTER_STATE(a)%%FILTER_STATE(a:)%%UPSTREAM_FILTER_STATE(a:FIELD:x):5%", ""},
		{"%FILTER_STATE(:PLAIN)%", "needs the key"},
		{"%FILTER_STATE(a:plain)%", "is one of"},
		{"%FILTER_STATE(a:FIELD)%", "is one of"},
		{"%UPSTREAM_FILTER_STATE(a:TYPED:5)%", "PLAIN, TYPED or FIELD:name"},
		{"%COMMON_DURATION(x:y)%", ""},
		{"%COMMON_DURATION(x)%", "two points of time"},
		{"%COMMON_DURATION(x:y:ms:ms)%", "two points of time"},
		{"%COMMON_DURATION(x:y:s)%", "is one of"},
	} {
		got := checkFormat(c.format)
		if (got == "") != (c.why == "") || !strings.Contains(got, c.why) {
			t.Errorf("checkFormat(%q) = %q, want %q in it", c.format, got, c.why)
		}
	}
}
