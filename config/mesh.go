package config

import (
	"cmp"
	"encoding/json"
	"net"
	"slices"
	"strconv"
	"time"

	"go.yaml.in/yaml/v3"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/wrapperspb"
	mesh "istio.io/api/mesh/v1alpha1"
	networking "istio.io/api/networking/v1alpha3"
)

// meshSection is the section of the settings file that Istio's API describes.
const meshSection = "mesh"

// ParseMesh reads Istio's MeshConfig from the section mesh of the settings file, and fills in
// defaults. A nil node is a section that is not there. Fields that are not honoured are problems:
// errors where they would protect something, warnings otherwise (meshfields.go lists them). The result
// is usable also when there are errors, but must not take effect then.
func ParseMesh(file string, node *yaml.Node) (*mesh.MeshConfig, []Problem) {
	m := &mesh.MeshConfig{}
	d := &decoder{parser: &parser{file: file}, root: node, where: fieldLines{}}
	if !isNull(node) {
		d.message(meshSection, m.ProtoReflect(), deref(node))
	}
	if d.errors == 0 {
		c := checker{object: &Object{}}
		checkMesh(&c, m)
		checkFields(&c, meshSection, "", m.ProtoReflect(), allMeshFields())
		for _, problem := range c.problems {
			problem.Object, problem.Line = "", d.where.of(problem.Field, node.Line)
			d.report(problem)
		}
	}
	if _, written := d.where[meshSection+".defaultProviders.metrics"]; !written { // an empty list means none
		fillMetrics(m)
	}
	fillMesh(m)
	return m, d.sortedProblems()
}

// DefaultMesh is the MeshConfig of a mesh without settings.
func DefaultMesh() *mesh.MeshConfig {
	m := &mesh.MeshConfig{}
	fillMetrics(m)
	fillMesh(m)
	return m
}

// fillMetrics makes Prometheus the default provider of metrics. Source: Istio's default profile.
func fillMetrics(m *mesh.MeshConfig) {
	def(&m.DefaultProviders, &mesh.MeshConfig_DefaultProviders{})
	m.DefaultProviders.Metrics = []string{PrometheusProvider}
}

// The ports of a proxy to which connections are redirected where MeshConfig's proxyListenPort and
// proxyInboundListenPort are not set. Source: Istio's defaults.
const (
	DefaultOutboundPort = 15001
	DefaultInboundPort  = 15006
)

// fillMesh sets what operators left to the defaults. Only fields that Ashore honours have one.
// Source: Istio's defaults, https://istio.io/latest/docs/reference/config/istio.mesh.v1alpha1/
func fillMesh(m *mesh.MeshConfig) {
	m.ExtensionProviders = withBuiltIn(m.ExtensionProviders)
	fillTracing(m)
	def(&m.ProxyListenPort, DefaultOutboundPort)
	def(&m.ProxyInboundListenPort, DefaultInboundPort)
	def(&m.RootNamespace, "istio-system")
	def(&m.TrustDomain, "cluster.local")
	defDuration(&m.ConnectTimeout, 10*time.Second)
	defDuration(&m.ProtocolDetectionTimeout, 0)
	defDuration(&m.DnsRefreshRate, time.Minute)
	if m.EnableAutoMtls == nil {
		m.EnableAutoMtls = wrapperspb.Bool(true)
	}
	for _, to := range []*[]string{&m.DefaultServiceExportTo, &m.DefaultVirtualServiceExportTo,
		&m.DefaultDestinationRuleExportTo} {
		if len(*to) == 0 {
			*to = []string{"*"}
		}
	}
	if m.OutboundTrafficPolicy == nil {
		m.OutboundTrafficPolicy = &mesh.MeshConfig_OutboundTrafficPolicy{Mode: mesh.MeshConfig_OutboundTrafficPolicy_ALLOW_ANY}
	}
	if m.LocalityLbSetting == nil {
		m.LocalityLbSetting = &networking.LocalityLoadBalancerSetting{}
	}
	if m.LocalityLbSetting.Enabled == nil {
		m.LocalityLbSetting.Enabled = wrapperspb.Bool(true)
	}
	if m.PathNormalization == nil {
		m.PathNormalization = &mesh.MeshConfig_ProxyPathNormalization{}
	}
	if m.PathNormalization.Normalization == mesh.MeshConfig_ProxyPathNormalization_DEFAULT {
		m.PathNormalization.Normalization = mesh.MeshConfig_ProxyPathNormalization_BASE
	}
}

// fillTracing makes the collector of defaultConfig.tracing the default provider of spans, where
// tracing is enabled and there is no other.
func fillTracing(m *mesh.MeshConfig) {
	const name = "defaultConfig.tracing"
	host, text, err := net.SplitHostPort(m.GetDefaultConfig().GetTracing().GetZipkin().GetAddress())
	port, notNumber := strconv.ParseUint(text, 10, 16)
	if !m.EnableTracing || len(m.GetDefaultProviders().GetTracing()) > 0 || err != nil || notNumber != nil {
		return
	}
	m.ExtensionProviders = append(m.ExtensionProviders, &mesh.MeshConfig_ExtensionProvider{Name: name,
		Provider: &mesh.MeshConfig_ExtensionProvider_Zipkin{
			Zipkin: &mesh.MeshConfig_ExtensionProvider_ZipkinTracingProvider{Service: host, Port: uint32(port)}}})
	def(&m.DefaultProviders, &mesh.MeshConfig_DefaultProviders{})
	m.DefaultProviders.Tracing = []string{name}
}

func def[T comparable](field *T, value T) {
	var zero T
	if *field == zero {
		*field = value
	}
}

func defDuration(field **durationpb.Duration, value time.Duration) {
	if *field == nil {
		*field = durationpb.New(value)
	}
}

// checkMesh checks the values of the fields that are honoured.
func checkMesh(c *checker, m *mesh.MeshConfig) {
	in := func(field string) string { return meshSection + "." + field }
	ports := map[int32]string{}
	for _, p := range []struct {
		field  string
		number int32
	}{
		{"proxyListenPort", cmp.Or(m.ProxyListenPort, DefaultOutboundPort)},
		{"proxyInboundListenPort", cmp.Or(m.ProxyInboundListenPort, DefaultInboundPort)},
		{"proxyHttpPort", m.ProxyHttpPort},
	} {
		if p.number == 0 {
			continue
		}
		if owner := machinePort(p.number); owner != "" {
			c.errorf(in(p.field), "port %d is for %s on every machine of the mesh: choose another", p.number, owner)
		} else if p.number < 0 || p.number > 65535 {
			c.errorf(in(p.field), "a port is a number from 1 to 65535, not %d", p.number)
		} else if other := ports[p.number]; other != "" {
			c.errorf(in(p.field), "port %d is that of %s too: choose another", p.number, other)
		}
		ports[p.number] = p.field
	}
	if m.DnsRefreshRate.AsDuration() == time.Millisecond {
		c.errorf(in("dnsRefreshRate"),
			"proxies need more than 1ms between two queries for a name: write a minute or so")
	}
	c.accessLog(m)
	c.unknownHostsTLS(in("outboundTrafficPolicy"), m.GetOutboundTrafficPolicy())
	c.extensionProviders(in("extensionProviders"), m.ExtensionProviders)
	c.defaultProviders(in("defaultProviders"), m)
	if m.EnableTracing && len(m.GetDefaultProviders().GetTracing()) == 0 && m.GetDefaultConfig().GetTracing().GetZipkin() == nil {
		c.warnf(in("enableTracing"), "no traces are made without a provider: set defaultProviders.tracing too")
	}
}

// unknownHostsTLS checks how proxies connect to the hosts of requests that nobody declared.
// Source: istio.io, MeshConfig.outboundTrafficPolicy.tls: for the mode ALLOW_ANY_DYNAMIC_DNS only.
func (c *checker) unknownHostsTLS(path string, p *mesh.MeshConfig_OutboundTrafficPolicy) {
	switch t := p.GetTls(); {
	case t == nil:
	case p.Mode != mesh.MeshConfig_OutboundTrafficPolicy_ALLOW_ANY_DYNAMIC_DNS:
		c.errorf(path+".tls", "in the mode %s connections are passed on as they are: set mode ALLOW_ANY_DYNAMIC_DNS, or remove tls",
			p.Mode)
	case t.Mode == networking.ClientTLSSettings_ISTIO_MUTUAL:
		c.errorf(path+".tls.mode", "certificates of the mesh name no hosts: choose SIMPLE or MUTUAL")
	case t.CredentialName != "":
		c.errorf(path+".tls.credentialName",
			"a secret is only for clients that a DestinationRule selects: write caCertificates, or clientCertificate and privateKey")
	}
}

// machinePort says what a proxy, or the agent beside it, listens on a port for; empty: for nothing.
// Source: docs/agent.md, ports.
func machinePort(number int32) string {
	switch number {
	case 15000:
		return "the proxy's administration"
	case statusPort:
		return "the agent's health checks and metrics"
	case healthPort:
		return "the proxy's health checks"
	case metricsPort:
		return "the proxy's metrics"
	default:
		return ""
	}
}

// accessLog checks the fields that belong together.
func (c *checker) accessLog(m *mesh.MeshConfig) {
	const format = meshSection + ".accessLogFormat"
	if m.AccessLogFile == "" && m.AccessLogFormat != "" {
		c.warnf(format, "no access log is written: set accessLogFile too, /dev/stdout for instance")
	}
	if m.AccessLogFormat == "" {
		return
	}
	if m.AccessLogEncoding == mesh.MeshConfig_JSON && json.Unmarshal([]byte(m.AccessLogFormat), &map[string]any{}) != nil {
		c.errorf(format, "with accessLogEncoding JSON the format must be a JSON object of names and formats")
		return
	}
	c.why(format, checkFormat(m.AccessLogFormat))
}

// checkFields checks the fields of m that are honoured, and reports the others that are set. at is
// the path of m, and path that within MeshConfig.
func checkFields(c *checker, at, path string, m protoreflect.Message, fields []meshField) {
	m.Range(func(fd protoreflect.FieldDescriptor, v protoreflect.Value) bool {
		at, path := below(at, fd.JSONName()), below(path, fd.JSONName())
		i := slices.IndexFunc(fields, func(f meshField) bool { return f.path == path })
		switch f := fields[i]; {
		case path == "extensionProviders": // see there
		case f.status == honoured:
			c.field(at, fd, v)
		case f.status == inParts:
			checkFields(c, at, path, v.Message(), fields)
		case f.status == refused:
			c.errorf(at, "not supported yet, %s: remove it, so that nobody relies on it", f.text)
		case fd.Message() != nil && !fd.IsList() && isZero(v.Message()) != (path == "verifyCertificateAtClient"):
			// false asks for nothing else than what Ashore does; of this one, true
		default:
			c.warnf(at, "not supported yet, %s: remove it", f.text)
		}
		return true
	})
}
