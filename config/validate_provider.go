package config

import (
	"net/http"
	"strconv"
	"strings"

	mesh "istio.io/api/mesh/v1alpha1"
)

// extensionProviders checks whom CUSTOM policies may ask. A provider that does not stand here
// cannot be asked: what its policies match is refused.
func (c *checker) extensionProviders(path string, providers []*mesh.MeshConfig_ExtensionProvider) {
	seen := map[string]bool{}
	for i, p := range providers {
		path := at(path, i)
		switch name := p.GetName(); {
		case name == "":
			c.errorf(path+".name", "the name is missing: policies name their provider")
		case seen[name]:
			c.errorf(path+".name", "%s occurs twice: give each provider a name of its own", quote(name))
		default:
			seen[name] = true
		}
		switch byHTTP, byGRPC := p.GetEnvoyExtAuthzHttp(), p.GetEnvoyExtAuthzGrpc(); {
		case byHTTP != nil:
			path += ".envoyExtAuthzHttp"
			c.walk(path, byHTTP.ProtoReflect())
			c.providerBody(path, byHTTP.IncludeRequestBodyInCheck)
			//nolint:staticcheck // Istio's old name, which configuration may still have
			if len(byHTTP.IncludeHeadersInCheck) > 0 {
				c.deprecated(path+".includeHeadersInCheck", "includeRequestHeadersInCheck",
					len(byHTTP.IncludeRequestHeadersInCheck) > 0)
			}
		case byGRPC != nil:
			path += ".envoyExtAuthzGrpc"
			c.walk(path, byGRPC.ProtoReflect())
			c.providerBody(path, byGRPC.IncludeRequestBodyInCheck)
		case p.GetProvider() == nil:
			c.errorf(path, "it says nothing of how to ask: write envoyExtAuthzHttp or envoyExtAuthzGrpc")
		default:
			c.warnf(path, "not supported yet, only envoyExtAuthzHttp and envoyExtAuthzGrpc are: remove it")
		}
	}
}

// providerBody checks how much of a request's body a provider sees.
func (c *checker) providerBody(path string,
	b *mesh.MeshConfig_ExtensionProvider_EnvoyExternalAuthorizationRequestBody) {
	if b != nil && b.MaxRequestBytes == 0 {
		c.errorf(path+".includeRequestBodyInCheck.maxRequestBytes",
			"at least one byte has to be allowed: write 8192, or leave out the body")
	}
}

// checkProviderService is the rule for where a provider is asked: "[namespace/]host".
func checkProviderService(service string) string {
	namespace, host, scoped := strings.Cut(service, "/")
	switch {
	case !scoped:
		host = service
	case checkDNSLabel(namespace) != "":
		return checkDNSLabel(namespace)
	}
	if host == "" {
		return "the service is missing: write the host of a service of the mesh"
	}
	return checkLowerHost(host)
}

// checkProviderPath is the rule for what is put before the path of a request.
func checkProviderPath(path string) string {
	if path[0] != '/' || strings.ContainsAny(path, "?# ") {
		return quote(path) + " is not the beginning of a path: write /check"
	}
	return ""
}

// checkProviderStatus is the rule for the status of requests when the provider cannot be reached.
func checkProviderStatus(status string) string {
	if n, err := strconv.Atoi(status); err != nil || n < 200 || n > 599 || http.StatusText(n) == "" {
		return quote(status) + " is not a status of HTTP: write 403 or 503"
	}
	return ""
}

// checkProviderHeader is the rule for names of headers, with a star before or after for all that
// end or begin so.
func checkProviderHeader(name string) string {
	if why := checkPolicyName(name); why != "" || name == "*" {
		return quote(name) + " is not the name of a header, or of all that begin or end with something: write x-user, x-* or *-id"
	}
	return checkHeaderName(strings.Trim(name, "*"))
}
