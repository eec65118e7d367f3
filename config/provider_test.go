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
		`[{name: a}]`: "it says nothing of how to ask",
		`[{name: a, zipkin: {service: b.example, port: 80}}]`:                                                         "only envoyExtAuthzHttp and envoyExtAuthzGrpc are",
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
