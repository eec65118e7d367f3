package config

import (
	"strings"
	"testing"

	"github.com/ashore-mesh/ashore/internal/feed"
)

// A provider that could not be asked as it was meant is refused with the reason; one in order is
// not.
func TestExtensionProviders(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		`[{name: a, envoyExtAuthzHttp: {service: shop/authz.example, port: 80, timeout: 1s, pathPrefix: /check, failOpen: true, statusOnError: "503", includeRequestHeadersInCheck: [x-a, x-*, "*-id"], includeAdditionalHeadersInCheck: {x-b: c}, includeRequestBodyInCheck: {maxRequestBytes: 1}}}]`: "",
		`[{name: a, envoyExtAuthzGrpc: {service: authz.example, port: 80}}, {name: b, envoyExtAuthzGrpc: {service: authz.example, port: 80}}]`:                                                                                                                                                         "",
		`[{envoyExtAuthzGrpc: {service: authz.example, port: 80}}]`:                                                                        "extensionProviders[0].name: the name is missing",
		`[{name: a, envoyExtAuthzGrpc: {service: authz.example, port: 80}}, {name: a, envoyExtAuthzGrpc: {service: b.example, port: 80}}]`: `[1].name: "a" occurs twice`,
		`[{name: a}]`: "the provider has no type",
		`[{name: a, zipkin: {service: b.example, port: 80, path: /spans, timeout: 1s, headers: [{name: x-a, value: b}]}}, {name: b, opentelemetry: {service: b.example, port: 80, http: {path: v1/traces}}}, {name: c, opentelemetry: {service: b.example, port: 80, grpc: {initialMetadata: [{name: a, value: b}]}, resourceDetectors: {environment: {}}}}]`:                                                          "",
		`[{name: a, envoyFileAccessLog: {path: /dev/stderr, logFormat: {labels: {a: "%PROTOCOL%", b: {c: 1}}}}}, {name: b, envoyHttpAls: {service: b.example, port: 80, additionalRequestHeadersToLog: [x-a]}}, {name: c, envoyTcpAls: {service: b.example, port: 80}}, {name: d, envoyOtelAls: {service: b.example, port: 80, logFormat: {text: "%PROTOCOL%", labels: {a: b}}}}, {name: prometheus, prometheus: {}}]`: "",
		`[{name: a, zipkin: {port: 80}}]`: "the service is missing",
		`[{name: a, zipkin: {service: b.example, port: 80, headers: [{name: a, envName: B}]}}]`:                       "headers[0].envName: a header from the environment of the control plane is not supported yet",
		`[{name: a, opentelemetry: {service: b.example, port: 80, http: {}}}]`:                                        "http.path: \"\" is not the beginning of a path",
		`[{name: a, opentelemetry: {service: b.example, port: 80, http: {path: /a}, grpc: {}}}]`:                      "keep one of the two",
		`[{name: a, opentelemetry: {service: b.example, port: 80, dynatraceSampler: {}}}]`:                            "what only Dynatrace has is not supported",
		`[{name: a, skywalking: {service: b.example, port: 80}}]`:                                                     "use opentelemetry",
		`[{name: a, sds: {service: b.example, port: 80}}]`:                                                            "receives nothing",
		`[{name: a, envoyFileAccessLog: {logFormat: {labels: {a: {b: "%NO"}}}}}]`:                                     "logFormat.labels[a][b]: \"%NO\" is not a command",
		`[{name: a, envoyFileAccessLog: {logFormat: {text: "%NO"}}}]`:                                                 "is not a command",
		`[{name: a, envoyFileAccessLog: {path: log}}]`:                                                                "is not an absolute path",
		`[{name: a, envoyOtelAls: {service: b.example, port: 80, logFormat: {labels: {a: 1}}}}]`:                      "a label must be a string",
		`[{name: a, envoyHttpAls: {service: b.example, port: 80, additionalRequestHeadersToLog: ["a b"]}}]`:           "is not the name of a header",
		`[{name: a, envoyExtAuthzGrpc: {port: 80}}]`:                                                                  "the service is missing",
		`[{name: a, envoyExtAuthzGrpc: {service: b.example}}]`:                                                        "a port is a number",
		`[{name: a, envoyExtAuthzGrpc: {service: "A B/b.example", port: 80}}]`:                                        "is not a name",
		`[{name: a, envoyExtAuthzGrpc: {service: b.example, port: 80, timeout: 0s}}]`:                                 "at least 1ms",
		`[{name: a, envoyExtAuthzGrpc: {service: b.example, port: 80, statusOnError: "999"}}]`:                        "is not a status of HTTP",
		`[{name: a, envoyExtAuthzGrpc: {service: b.example, port: 80, includeRequestBodyInCheck: {}}}]`:               "at least one byte",
		`[{name: a, envoyExtAuthzHttp: {service: b.example, port: 80, pathPrefix: check}}]`:                           "is not the beginning of a path",
		`[{name: a, envoyExtAuthzHttp: {service: b.example, port: 80, includeRequestHeadersInCheck: ["a*b"]}}]`:       "is not the name of a header",
		`[{name: a, envoyExtAuthzHttp: {service: b.example, port: 80, includeAdditionalHeadersInCheck: {"a b": c}}}]`: "is not the name of a header",
		`[{name: a, envoyExtAuthzHttp: {service: b.example, port: 80, includeHeadersInCheck: [a]}}]`:                  "this field is deprecated",
		`[{name: a, envoyExtAuthzHttp: {service: b.example, port: 80, headersToDownstreamOnDeny: ["*"]}}]`:            "is not the name of a header",
	} {
		_, problems := ParseMesh("mesh.yaml", section(t, "mesh: {extensionProviders: "+text+"}", "mesh"))
		switch {
		case want == "" && len(problems) > 0:
			t.Errorf("%s: %v", text, problems)
		case want != "" && !hasProblem(problems, want):
			t.Errorf("%s: got %v, want %q", text, problems, want)
		}
	}
}

func hasProblem(problems []feed.Problem, want string) bool {
	for _, p := range problems {
		if strings.Contains(p.String(), want) {
			return true
		}
	}
	return false
}
