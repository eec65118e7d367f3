package config

import (
	"maps"
	"net/http"
	"slices"
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
		switch {
		case p.GetEnvoyExtAuthzHttp() != nil:
			c.httpProvider(path+".envoyExtAuthzHttp", p.GetEnvoyExtAuthzHttp())
		case p.GetEnvoyExtAuthzGrpc() != nil:
			c.grpcProvider(path+".envoyExtAuthzGrpc", p.GetEnvoyExtAuthzGrpc())
		case p.GetProvider() == nil:
			c.errorf(path, "it says nothing of how to ask: write envoyExtAuthzHttp or envoyExtAuthzGrpc")
		default:
			c.warnf(path, "not supported yet, only envoyExtAuthzHttp and envoyExtAuthzGrpc are: remove it")
		}
	}
}

// httpProvider checks a provider that is asked by HTTP.
func (c *checker) httpProvider(path string,
	p *mesh.MeshConfig_ExtensionProvider_EnvoyExternalAuthorizationHttpProvider) {
	c.providerService(path, p.Service, p.Port)
	c.duration(path+".timeout", p.Timeout)
	c.providerStatus(path+".statusOnError", p.StatusOnError)
	c.providerBody(path+".includeRequestBodyInCheck", p.IncludeRequestBodyInCheck)
	if p.PathPrefix != "" && (p.PathPrefix[0] != '/' || strings.ContainsAny(p.PathPrefix, "?# ")) {
		c.errorf(path+".pathPrefix", "%s is not the beginning of a path: write /check", quote(p.PathPrefix))
	}
	old := p.IncludeHeadersInCheck //nolint:staticcheck // Istio's old name, which configuration may still have
	if len(old) > 0 {
		c.deprecated(path+".includeHeadersInCheck", "includeRequestHeadersInCheck",
			len(p.IncludeRequestHeadersInCheck) > 0)
	}
	c.providerHeaders(path+".includeHeadersInCheck", old)
	c.providerHeaders(path+".includeRequestHeadersInCheck", p.IncludeRequestHeadersInCheck)
	c.providerHeaders(path+".headersToUpstreamOnAllow", p.HeadersToUpstreamOnAllow)
	c.providerHeaders(path+".headersToDownstreamOnDeny", p.HeadersToDownstreamOnDeny)
	c.providerHeaders(path+".headersToDownstreamOnAllow", p.HeadersToDownstreamOnAllow)
	for _, name := range slices.Sorted(maps.Keys(p.IncludeAdditionalHeadersInCheck)) {
		in := entry(path+".includeAdditionalHeadersInCheck", name)
		c.why(in, checkHeaderName(name))
		c.why(in, checkHeaderText(p.IncludeAdditionalHeadersInCheck[name]))
	}
}

// grpcProvider checks a provider that is asked by gRPC.
func (c *checker) grpcProvider(path string,
	p *mesh.MeshConfig_ExtensionProvider_EnvoyExternalAuthorizationGrpcProvider) {
	c.providerService(path, p.Service, p.Port)
	c.duration(path+".timeout", p.Timeout)
	c.providerStatus(path+".statusOnError", p.StatusOnError)
	c.providerBody(path+".includeRequestBodyInCheck", p.IncludeRequestBodyInCheck)
}

// providerService checks where a provider is asked: "[namespace/]host" and a port.
func (c *checker) providerService(path, service string, port uint32) {
	namespace, host, ok := strings.Cut(service, "/")
	if !ok {
		namespace, host = "", service
	} else {
		c.why(path+".service", checkDNSLabel(namespace))
	}
	if host == "" {
		c.errorf(path+".service", "the service is missing: write the host of a service of the mesh")
	} else {
		c.why(path+".service", checkLowerHost(host))
	}
	c.port(path+".port", port)
}

// providerStatus checks the status of requests when the provider cannot be reached.
func (c *checker) providerStatus(path, status string) {
	if status == "" {
		return
	}
	if n, err := strconv.Atoi(status); err != nil || n < 200 || n > 599 || http.StatusText(n) == "" {
		c.errorf(path, "%s is not a status of HTTP: write 403 or 503", quote(status))
	}
}

// providerBody checks how much of a request's body a provider sees.
func (c *checker) providerBody(path string,
	b *mesh.MeshConfig_ExtensionProvider_EnvoyExternalAuthorizationRequestBody) {
	if b != nil && b.MaxRequestBytes == 0 {
		c.errorf(path+".maxRequestBytes", "at least one byte has to be allowed: write 8192, or leave out the body")
	}
}

// providerHeaders checks names of headers, with a star before or after for all that end or begin
// so.
func (c *checker) providerHeaders(path string, names []string) {
	for i, n := range names {
		if why := checkPolicyName(n); why != "" || n == "*" {
			c.errorf(at(path, i), "%s is not the name of a header, or of all that begin or end with something: write x-user, x-* or *-id", quote(n))
			continue
		}
		c.why(at(path, i), checkHeaderName(strings.Trim(n, "*")))
	}
}
