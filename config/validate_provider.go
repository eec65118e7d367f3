package config

import (
	"maps"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"google.golang.org/protobuf/types/known/structpb"
	mesh "istio.io/api/mesh/v1alpha1"
)

// Signal is what an extension provider receives.
type Signal string

const (
	Metrics    Signal = "metrics"
	AccessLogs Signal = "access logs"
	Spans      Signal = "spans"
	// Requests are those that a CUSTOM AuthorizationPolicy asks about.
	Requests Signal = "requests for authorization"
)

// SignalOf returns what a provider receives. It is empty for a provider that is not supported.
func SignalOf(p *mesh.MeshConfig_ExtensionProvider) Signal {
	switch p.GetProvider().(type) {
	case *mesh.MeshConfig_ExtensionProvider_Prometheus:
		return Metrics
	case *mesh.MeshConfig_ExtensionProvider_EnvoyFileAccessLog, *mesh.MeshConfig_ExtensionProvider_EnvoyHttpAls,
		*mesh.MeshConfig_ExtensionProvider_EnvoyTcpAls, *mesh.MeshConfig_ExtensionProvider_EnvoyOtelAls:
		return AccessLogs
	case *mesh.MeshConfig_ExtensionProvider_Opentelemetry, *mesh.MeshConfig_ExtensionProvider_Zipkin:
		return Spans
	case *mesh.MeshConfig_ExtensionProvider_EnvoyExtAuthzHttp, *mesh.MeshConfig_ExtensionProvider_EnvoyExtAuthzGrpc:
		return Requests
	}
	return ""
}

// ProvidersOf returns the names of the mesh's providers of a kind, in their order.
func ProvidersOf(m *mesh.MeshConfig, s Signal) []string {
	var out []string
	for _, p := range m.GetExtensionProviders() {
		if SignalOf(p) == s {
			out = append(out, p.Name)
		}
	}
	return out
}

// The names of the providers that every mesh has. Source: Istio's default MeshConfig.
const (
	PrometheusProvider = "prometheus"
	// EnvoyProvider writes to /dev/stdout, in the mesh's accessLogFormat.
	EnvoyProvider = "envoy"
)

// builtInProviders are the providers of meshes that do not define their own of these names.
func builtInProviders() []*mesh.MeshConfig_ExtensionProvider {
	return []*mesh.MeshConfig_ExtensionProvider{
		{Name: PrometheusProvider, Provider: &mesh.MeshConfig_ExtensionProvider_Prometheus{
			Prometheus: &mesh.MeshConfig_ExtensionProvider_PrometheusMetricsProvider{}}},
		{Name: EnvoyProvider, Provider: &mesh.MeshConfig_ExtensionProvider_EnvoyFileAccessLog{
			EnvoyFileAccessLog: &mesh.MeshConfig_ExtensionProvider_EnvoyFileAccessLogProvider{Path: "/dev/stdout"}}},
	}
}

// withBuiltIn returns providers, and the built-in ones of other names.
func withBuiltIn(providers []*mesh.MeshConfig_ExtensionProvider) []*mesh.MeshConfig_ExtensionProvider {
	for _, p := range builtInProviders() {
		named := func(other *mesh.MeshConfig_ExtensionProvider) bool { return other.GetName() == p.Name }
		if !slices.ContainsFunc(providers, named) {
			providers = append(providers, p)
		}
	}
	return providers
}

// extensionProviders checks the providers that policies and Telemetry objects name.
func (c *checker) extensionProviders(path string, providers []*mesh.MeshConfig_ExtensionProvider) {
	seen := map[string]bool{}
	for i, p := range providers {
		path := at(path, i)
		switch name := p.GetName(); {
		case name == "":
			c.errorf(path+".name", "the name is missing: policies and Telemetry objects name their provider")
		case seen[name]:
			c.errorf(path+".name", "%s occurs twice: give each provider a name of its own", quote(name))
		default:
			seen[name] = true
		}
		switch {
		case p.GetProvider() == nil:
			c.warnf(path, "the provider has no type, and receives nothing: write opentelemetry or envoyFileAccessLog, for instance")
		case SignalOf(p) == "": // nobody can name it
			c.warnf(path, "this kind of provider is not supported yet, and receives nothing: "+
				"use opentelemetry, which collectors of all kinds receive")
		default:
			c.walk(path, p.ProtoReflect())
		}
	}
}

// defaultProviders checks the providers of signals for which no Telemetry object names one.
func (c *checker) defaultProviders(path string, m *mesh.MeshConfig) {
	all := &mesh.MeshConfig{ExtensionProviders: withBuiltIn(slices.Clone(m.ExtensionProviders))}
	for _, d := range []struct {
		field  string
		signal Signal
		names  []string
	}{
		{"metrics", Metrics, m.GetDefaultProviders().GetMetrics()},
		{"accessLogging", AccessLogs, m.GetDefaultProviders().GetAccessLogging()},
		{"tracing", Spans, m.GetDefaultProviders().GetTracing()},
	} {
		path := below(path, d.field)
		for i, name := range d.names {
			if known := ProvidersOf(all, d.signal); !slices.Contains(known, name) {
				c.warnf(at(path, i), "no extension provider of %s is called %s, so that it receives nothing%s", d.signal,
					quote(name), meantOrOneOf(name, known))
			}
		}
		if d.signal == Spans && len(d.names) > 1 {
			c.warnf(path, "spans go to the first provider: remove the other %d", len(d.names)-1)
		}
	}
}

// externalAuthorization checks a provider that is asked by HTTP.
func (c *checker) externalAuthorization(path string,
	p *mesh.MeshConfig_ExtensionProvider_EnvoyExternalAuthorizationHttpProvider) {
	//nolint:staticcheck // Istio's old name, which configuration may still have
	if len(p.IncludeHeadersInCheck) > 0 {
		c.deprecated(path+".includeHeadersInCheck", "includeRequestHeadersInCheck",
			len(p.IncludeRequestHeadersInCheck) > 0)
	}
}

// providerBody checks how much of a request's body a provider sees.
func (c *checker) providerBody(path string,
	b *mesh.MeshConfig_ExtensionProvider_EnvoyExternalAuthorizationRequestBody) {
	if b.MaxRequestBytes == 0 {
		c.errorf(path+".maxRequestBytes", "at least one byte has to be allowed: write 8192, or leave out the body")
	}
}

// openTelemetry checks how spans are sent.
func (c *checker) openTelemetry(path string, p *mesh.MeshConfig_ExtensionProvider_OpenTelemetryTracingProvider) {
	if p.Http != nil && p.Grpc != nil {
		c.errorf(path+".grpc", "http is written too: keep one of the two")
	}
}

// logLabels checks the formats of an access log in JSON. In a flat one every value is text.
func (c *checker) logLabels(path string, labels *structpb.Struct, flat bool) {
	for _, name := range slices.Sorted(maps.Keys(labels.GetFields())) {
		path := entry(path, name)
		switch v := labels.Fields[name].GetKind().(type) {
		case *structpb.Value_StringValue:
			c.why(path, checkFormat(v.StringValue))
		default:
			if flat {
				c.errorf(path, "a label must be a string: put it in quotes")
			} else if nested := labels.Fields[name].GetStructValue(); nested != nil {
				c.logLabels(path, nested, false)
			}
		}
	}
}

// checkCollector is the rule for the address of a collector of spans, "host:port".
func checkCollector(address string) string {
	host, port, err := net.SplitHostPort(address)
	if n, notNumber := strconv.ParseUint(port, 10, 16); err != nil || notNumber != nil || n == 0 {
		return quote(address) + " is not a host and a port: write zipkin.ops.svc.cluster.local:9411"
	}
	return checkLowerHost(host)
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
	if !strings.HasPrefix(path, "/") || strings.ContainsAny(path, "?# ") {
		return quote(path) + " is not the beginning of a path: write /check"
	}
	return ""
}

// checkSpanPath is the rule for where spans are sent to. The first slash may be missing, as in Istio.
func checkSpanPath(path string) string {
	if path != "" && path[0] != '/' {
		path = "/" + path
	}
	return checkProviderPath(path)
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
