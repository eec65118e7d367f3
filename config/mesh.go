package config

import (
	"cmp"
	"encoding/json"
	"slices"
	"time"

	"go.yaml.in/yaml/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/wrapperspb"
	mesh "istio.io/api/mesh/v1alpha1"
	networking "istio.io/api/networking/v1alpha3"

	"github.com/ashore-mesh/ashore/internal/feed"
)

// The sections of the settings file that Istio's API describes.
const (
	meshSection     = "mesh"
	networksSection = "meshNetworks"
)

// ParseMesh reads Istio's MeshConfig from the section mesh of the settings file, and fills in
// defaults. A nil node is a section that is not there. Fields that are not honoured are problems:
// errors where they would protect something, warnings otherwise (MeshFields lists them). The result
// is usable also when there are errors, but must not take effect then.
func ParseMesh(file string, node *yaml.Node) (*mesh.MeshConfig, []Problem) {
	m := &mesh.MeshConfig{}
	d := parseSection(m, file, meshSection, node)
	if d.errors == 0 {
		c := checker{object: &Object{}}
		checkMesh(&c, m)
		checkHonoured(&c, meshSection, "", m.ProtoReflect(), MeshFields())
		d.take(c.problems)
	}
	fillMesh(m)
	return m, d.sortedProblems()
}

// DefaultMesh is the MeshConfig of a mesh without settings.
func DefaultMesh() *mesh.MeshConfig {
	m := &mesh.MeshConfig{}
	fillMesh(m)
	return m
}

// ParseMeshNetworks reads Istio's MeshNetworks from the section meshNetworks of the settings file;
// nil when there is no such section. See ParseMesh.
func ParseMeshNetworks(file string, node *yaml.Node) (*mesh.MeshNetworks, []Problem) {
	if isNull(node) {
		return nil, nil
	}
	m := &mesh.MeshNetworks{}
	d := parseSection(m, file, networksSection, node)
	if d.errors == 0 {
		c := checker{object: &Object{}}
		if len(m.Networks) > 0 {
			c.warnf(networksSection, "not supported yet, endpoints are reached by their own addresses, whatever their network: remove it")
		}
		d.take(c.problems)
	}
	return m, d.sortedProblems()
}

// parseSection reads node into m.
func parseSection(m proto.Message, file, section string, node *yaml.Node) *decoder {
	d := &decoder{parser: &parser{file: file}, lines: lines{root: node}}
	if !isNull(node) {
		d.decode(section, m, node)
	}
	return d
}

// take reports what a checker of the section found, with the lines of its fields.
func (d *decoder) take(problems []Problem) {
	for _, problem := range problems {
		problem.Object = ""
		problem.Line = d.lines.of(trimSection(problem.Field))
		d.report(problem)
	}
}

// trimSection is the path below the section.
func trimSection(path string) string {
	_, rest := cutStep(path)
	return rest
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
	c.duration(in("connectTimeout"), m.ConnectTimeout)
	c.durationOrZero(in("protocolDetectionTimeout"), m.ProtocolDetectionTimeout)
	c.duration(in("dnsRefreshRate"), m.DnsRefreshRate)
	if m.DnsRefreshRate.AsDuration() == time.Millisecond {
		c.errorf(in("dnsRefreshRate"),
			"proxies need more than 1ms between two queries for a name: write a minute or so")
	}
	c.keepalive(in("tcpKeepalive"), m.TcpKeepalive)
	c.accessLog(m)
	if m.RootNamespace != "" {
		c.why(in("rootNamespace"), checkDNSLabel(m.RootNamespace))
	}
	if m.TrustDomain != "" {
		c.why(in("trustDomain"), checkLowerHost(m.TrustDomain))
	}
	c.unique(in("trustDomainAliases"), m.TrustDomainAliases)
	for i, d := range m.TrustDomainAliases {
		c.why(at(in("trustDomainAliases"), i), checkLowerHost(d))
	}
	c.meshTLSParameters(in("meshMTLS"), m.MeshMTLS)
	c.exportTo(in("defaultServiceExportTo"), m.DefaultServiceExportTo, true)
	c.exportTo(in("defaultVirtualServiceExportTo"), m.DefaultVirtualServiceExportTo, false)
	c.exportTo(in("defaultDestinationRuleExportTo"), m.DefaultDestinationRuleExportTo, false)
	c.locality(in("localityLbSetting"), m.LocalityLbSetting)
	c.retries(in("defaultHttpRetryPolicy"), m.DefaultHttpRetryPolicy)
	c.everyField(in("defaultHttpRetryPolicy"), m.DefaultHttpRetryPolicy.ProtoReflect())
	c.outboundPolicy(in("outboundTrafficPolicy"), m.OutboundTrafficPolicy)
	c.extensionProviders(in("extensionProviders"), m.ExtensionProviders)
}

// machinePort says what a proxy, or the agent beside it, listens on a port for; empty: for nothing.
// Source: docs/agent.md, ports.
func machinePort(number int32) string {
	switch number {
	case 15000:
		return "the proxy's administration"
	case 15020:
		return "the agent's health checks and metrics"
	case healthPort:
		return "the proxy's health checks"
	case metricsPort:
		return "the proxy's metrics"
	default:
		return ""
	}
}

// meshTLSParameters checks the versions, curves and ciphers of TLS between workloads.
func (c *checker) meshTLSParameters(path string, t *mesh.MeshConfig_TLSConfig) {
	if t == nil {
		return
	}
	c.unique(path+".ecdhCurves", t.EcdhCurves)
	for i, curve := range t.EcdhCurves {
		if !slices.Contains(curves(), curve) {
			c.errorf(at(path+".ecdhCurves", i), "unknown curve %s%s", quote(curve), meantOrOneOf(curve, curves()))
		}
	}
	c.ciphers(path+".cipherSuites", t.CipherSuites)
}

// outboundPolicy checks where traffic to unknown destinations goes.
func (c *checker) outboundPolicy(path string, p *mesh.MeshConfig_OutboundTrafficPolicy) {
	if p == nil {
		return
	}
	if p.Mode == mesh.MeshConfig_OutboundTrafficPolicy_ALLOW_ANY_DYNAMIC_DNS {
		c.unsupported(path+".mode", "ALLOW_ANY_DYNAMIC_DNS", "use ALLOW_ANY or REGISTRY_ONLY")
	}
}

// accessLog checks the three fields that belong together.
func (c *checker) accessLog(m *mesh.MeshConfig) {
	const file, format = meshSection + ".accessLogFile", meshSection + ".accessLogFormat"
	if m.AccessLogFile != "" {
		c.why(file, checkFile(m.AccessLogFile))
	} else if m.AccessLogFormat != "" {
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

// checkHonoured reports the fields of m that are set and not honoured. path is below the section.
func checkHonoured(c *checker, section, path string, m protoreflect.Message, fields []MeshField) {
	m.Range(func(fd protoreflect.FieldDescriptor, v protoreflect.Value) bool {
		at := fd.JSONName()
		if path != "" {
			at = path + "." + at
		}
		for _, f := range fields {
			if f.Path != at {
				continue
			}
			f.check(c, section, v)
			if f.parts && fd.Message() != nil {
				checkHonoured(c, section, at, v.Message(), fields)
			}
		}
		return true
	})
}

// check reports the field when its value is not honoured.
func (f MeshField) check(c *checker, section string, v protoreflect.Value) {
	if f.Honoured || f.parts || f.harmless != nil && f.harmless(v) {
		return
	}
	severity, todo := feed.Warning, "remove it"
	if f.Protects {
		severity, todo = feed.Error, "remove it, so that nobody relies on it"
	}
	c.add(severity, section+"."+f.Path, "not supported yet, "+f.Text+": "+todo)
}
