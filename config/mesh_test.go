package config

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.yaml.in/yaml/v3"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/testing/protocmp"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/wrapperspb"
	mesh "istio.io/api/mesh/v1alpha1"
	networking "istio.io/api/networking/v1alpha3"
)

// section reads a settings file and returns the node of one of its sections.
func section(t *testing.T, text, name string) *yaml.Node {
	t.Helper()
	var doc yaml.Node
	if err := yaml.Unmarshal([]byte(text), &doc); err != nil {
		t.Fatal(err)
	}
	if len(doc.Content) == 0 {
		return nil
	}
	return valueOf(doc.Content[0], name)
}

// Every field of MeshConfig and of its defaultConfig is in the table, once.
func TestMeshFieldsComplete(t *testing.T) {
	t.Parallel()
	listed := map[string]meshField{}
	for _, f := range allMeshFields() {
		if _, twice := listed[f.path]; twice {
			t.Errorf("%s stands twice", f.path)
		}
		if f.text == "" || strings.HasSuffix(f.text, ".") {
			t.Errorf("%s: not in order: %+v", f.path, f)
		}
		listed[f.path] = f
	}
	expect := map[string]bool{}
	walk := func(prefix string, m protoreflect.MessageDescriptor) {
		for _, name := range fieldNames(m.Fields()) {
			expect[prefix+name] = true
			if _, ok := listed[prefix+name]; !ok {
				t.Errorf("%s%s is not in the table", prefix, name)
			}
		}
	}
	descriptor := (&mesh.MeshConfig{}).ProtoReflect().Descriptor()
	walk("", descriptor)
	for path, f := range listed {
		if f.status == inParts {
			m := descriptor
			for name := range strings.SplitSeq(path, ".") {
				m = m.Fields().ByJSONName(name).Message()
			}
			walk(path+".", m)
		}
	}
	for path := range listed {
		if !expect[path] {
			t.Errorf("%s is in the table and not a field", path)
		}
	}
}

func TestMeshDefaults(t *testing.T) {
	t.Parallel()
	want := &mesh.MeshConfig{
		ProxyListenPort: 15001, ProxyInboundListenPort: 15006, RootNamespace: "istio-system", TrustDomain: "cluster.local",
		EnableAutoMtls: wrapperspb.Bool(true),
		ConnectTimeout: durationpb.New(10 * time.Second), ProtocolDetectionTimeout: durationpb.New(0), DnsRefreshRate: durationpb.New(time.Minute),
		DefaultServiceExportTo: []string{"*"}, DefaultVirtualServiceExportTo: []string{"*"}, DefaultDestinationRuleExportTo: []string{"*"},
		OutboundTrafficPolicy: &mesh.MeshConfig_OutboundTrafficPolicy{Mode: mesh.MeshConfig_OutboundTrafficPolicy_ALLOW_ANY},
		LocalityLbSetting:     &networking.LocalityLoadBalancerSetting{Enabled: wrapperspb.Bool(true)},
		PathNormalization:     &mesh.MeshConfig_ProxyPathNormalization{Normalization: mesh.MeshConfig_ProxyPathNormalization_BASE},
		ExtensionProviders:    builtInProviders(),
		DefaultProviders:      &mesh.MeshConfig_DefaultProviders{Metrics: []string{"prometheus"}},
	}
	got, problems := ParseMesh("ashored.yaml", nil)
	if len(problems) != 0 {
		t.Errorf("no section: %v", problems)
	}
	if diff := cmp.Diff(want, got, protocmp.Transform()); diff != "" {
		t.Errorf("defaults (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(want, DefaultMesh(), protocmp.Transform()); diff != "" {
		t.Errorf("DefaultMesh (-want +got):\n%s", diff)
	}
}

// What operators set stands, beside the defaults.
func TestMeshSet(t *testing.T) {
	t.Parallel()
	const text = `log: {level: info}
mesh:
  accessLogFile: /dev/stdout
  accessLogFormat: |
    [%START_TIME%] %REQ(:METHOD)% %RESPONSE_CODE%
  connectTimeout: 100ms
  outboundTrafficPolicy: {mode: REGISTRY_ONLY}
  proxyHttpPort: 15080
  rootNamespace: mesh
  defaultServiceExportTo: ["."]
  localityLbSetting: {failover: [{from: eu, to: us}]}
  pathNormalization: {normalization: NONE}
  defaultHttpRetryPolicy: {attempts: 5, retryOn: 5xx}
  h2UpgradePolicy: UPGRADE
  trustDomain: shop.example
  trustDomainAliases: [old.example]
  meshMTLS: {minProtocolVersion: TLSV1_3, ecdhCurves: [X25519, P-256], cipherSuites: [ECDHE-ECDSA-AES128-GCM-SHA256]}
  enableAutoMtls: false
  verifyCertificateAtClient: true
  enablePrometheusMerge: false
  inboundTrafficPolicy: {mode: PASSTHROUGH}
`
	got, problems := ParseMesh("ashored.yaml", section(t, text, "mesh"))
	for _, p := range problems {
		t.Error(p)
	}
	switch {
	case got.ConnectTimeout.AsDuration() != 100*time.Millisecond,
		got.OutboundTrafficPolicy.Mode != mesh.MeshConfig_OutboundTrafficPolicy_REGISTRY_ONLY,
		got.ProxyHttpPort != 15080, got.RootNamespace != "mesh", got.DefaultServiceExportTo[0] != ".",
		got.DefaultVirtualServiceExportTo[0] != "*", !got.LocalityLbSetting.Enabled.GetValue(), len(got.LocalityLbSetting.Failover) != 1,
		got.PathNormalization.Normalization != mesh.MeshConfig_ProxyPathNormalization_NONE, got.DefaultHttpRetryPolicy.Attempts != 5:
		t.Errorf("got %v", got)
	}
}

// An empty list of providers of metrics is not the same as no list.
func TestMeshMetrics(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"mesh: {defaultProviders: {metrics: []}}":                                                   "[]",
		"mesh: {defaultProviders: {accessLogging: [envoy]}}":                                        "[prometheus]",
		"mesh: {extensionProviders: [{name: p, prometheus: {}}], defaultProviders: {metrics: [p]}}": "[p]",
	} {
		m, problems := ParseMesh("ashored.yaml", section(t, text, "mesh"))
		if got := fmt.Sprint(m.DefaultProviders.Metrics); len(problems) > 0 || got != want {
			t.Errorf("%s: got %s, want %s; problems %v", text, got, want, problems)
		}
	}
}

func TestMeshProblems(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ name, text, want string }{
		{"unknown field", "mesh:\n  acessLogFile: /dev/stdout", "error ashored.yaml:2: mesh.acessLogFile: unknown field \"acessLogFile\", did you mean \"accessLogFile\"?"},
		{"form", "mesh: text", "error ashored.yaml:1: mesh: want an object with fields (proxyListenPort, proxyInboundListenPort, proxyHttpPort, connectTimeout, hboneIdleTimeout, protocolDetectionTimeout, …), not \"text\""},
		{"warning", "mesh:\n  ingressClass: a\n", "warning ashored.yaml:2: mesh.ingressClass: not supported yet, there is no Kubernetes ingress to serve: remove it"},
		{"tracing without a provider", "mesh:\n  enableTracing: true\n", "warning ashored.yaml:2: mesh.enableTracing: no traces are made without a provider: set defaultProviders.tracing too"},
		{"provider", "mesh:\n  defaultProviders:\n    accessLogging: [evoy]\n", "warning ashored.yaml:3: mesh.defaultProviders.accessLogging[0]: no extension provider of access logs is called \"evoy\", so that it receives nothing, did you mean \"envoy\"?"},
		{"two of spans", "mesh:\n  extensionProviders: [{name: a, zipkin: {service: a.example, port: 80}}, {name: b, zipkin: {service: a.example, port: 80}}]\n  defaultProviders:\n    tracing: [a, b]\n", "warning ashored.yaml:4: mesh.defaultProviders.tracing: spans go to the first provider: remove the other 1"},
		{"collector", "mesh:\n  enableTracing: true\n  defaultConfig: {tracing: {zipkin: {address: zipkin}}}\n", "error ashored.yaml:3: mesh.defaultConfig.tracing.zipkin.address: \"zipkin\" is not a host and a port: write zipkin.ops.svc.cluster.local:9411"},
		{"sampling", "mesh:\n  defaultConfig: {tracing: {sampling: 101}}\n", "error ashored.yaml:2: mesh.defaultConfig.tracing.sampling: a percentage is from 0 to 100, not 101"},
		{"would protect", "mesh:\n  discoverySelectors: [{matchLabels: {a: b}}]\n", "error ashored.yaml:2: mesh.discoverySelectors: not supported yet, namespaces have no labels without Kubernetes; choose what is read by the sources of the settings file: remove it, so that nobody relies on it"},
		{"default curve", "mesh:\n  tlsDefaults: {ecdhCurves: [P-255]}\n", "error ashored.yaml:2: mesh.tlsDefaults.ecdhCurves[0]: unknown curve \"P-255\", did you mean \"P-256\"?"},
		{"default pool", "mesh:\n  defaultTrafficPolicy: {connectionPool: {}}\n", "error ashored.yaml:2: mesh.defaultTrafficPolicy.connectionPool: nothing is set: write at least one of tcp, http, or remove it"},
		{"streams", "mesh:\n  defaultConfig: {connectionSettings: {httpMaxConcurrentStreams: 0}}\n", "error ashored.yaml:2: mesh.defaultConfig.connectionSettings.httpMaxConcurrentStreams: the number must be at least 1, it is 0"},
		{"variable", "mesh:\n  defaultConfig: {proxyMetadata: {ISTIO_META_CLUSTER_ID: east, a-b: c}}\n", "error ashored.yaml:2: mesh.defaultConfig.proxyMetadata[a-b]: \"a-b\" is not the name of a variable: use letters, digits and \"_\""},
		{"alias", "mesh:\n  trustDomainAliases: [old.example, \"a/b\"]\n", "error ashored.yaml:2: mesh.trustDomainAliases[1]: \"a/b\" is not a host name: leave out the scheme and the path"},
		{"curve", "mesh:\n  meshMTLS: {minProtocolVersion: TLSV1_3, ecdhCurves: [P-255]}\n", "error ashored.yaml:2: mesh.meshMTLS.ecdhCurves[0]: unknown curve \"P-255\", did you mean \"P-256\"?"},
		{"cipher", "mesh:\n  meshMTLS:\n    cipherSuites: [RC4]\n", "error ashored.yaml:3: mesh.meshMTLS.cipherSuites[0]: unknown cipher suite \"RC4\"; use one of " + strings.Join(cipherSuites(), ", ")},
		{"part", "mesh:\n  outboundTrafficPolicy:\n    mode: ALLOW_ANY\n    tls: {mode: SIMPLE}\n", "error ashored.yaml:4: mesh.outboundTrafficPolicy.tls: in the mode ALLOW_ANY connections are passed on as they are: set mode ALLOW_ANY_DYNAMIC_DNS, or remove tls"},
		{"TLS to unknown hosts", "mesh:\n  outboundTrafficPolicy:\n    mode: ALLOW_ANY_DYNAMIC_DNS\n    tls: {mode: DISABLE, sni: a.example}\n", "error ashored.yaml:4: mesh.outboundTrafficPolicy.tls.sni: the mode DISABLE makes this without effect: remove it, or choose SIMPLE or MUTUAL"},
		{"secret for unknown hosts", "mesh:\n  outboundTrafficPolicy:\n    mode: ALLOW_ANY_DYNAMIC_DNS\n    tls: {mode: SIMPLE, credentialName: a}\n", "error ashored.yaml:4: mesh.outboundTrafficPolicy.tls.credentialName: a secret is only for clients that a DestinationRule selects: write caCertificates, or clientCertificate and privateKey"},
		{"proxy's process", "mesh:\n  defaultConfig:\n    binaryPath: /envoy\n", "warning ashored.yaml:3: mesh.defaultConfig.binaryPath: not supported yet, this is a setting of the agent: remove it"},
		{"verify", "mesh:\n  verifyCertificateAtClient: false\n", "warning ashored.yaml:2: mesh.verifyCertificateAtClient: not supported yet, the certificates of TLS destinations are always verified, unless a DestinationRule sets insecureSkipVerify: remove it"},
		{"mode", "mesh:\n  outboundTrafficPolicy:\n    mode: ALLOW_ANY_DYNAMIC_DNS\n    tls: {mode: ISTIO_MUTUAL}\n", "error ashored.yaml:4: mesh.outboundTrafficPolicy.tls.mode: certificates of the mesh name no hosts: choose SIMPLE or MUTUAL"},
		{"a default port", "mesh:\n  proxyListenPort: 15006\n", "error ashored.yaml:2: mesh.proxyInboundListenPort: port 15006 is that of proxyListenPort too: choose another"},
		{"the proxy's own port", "mesh:\n  proxyHttpPort: 15021\n", "error ashored.yaml:2: mesh.proxyHttpPort: port 15021 is for the proxy's health checks on every machine of the mesh: choose another"},
		{"the proxy's administration", "mesh:\n  proxyHttpPort: 15000\n", "error ashored.yaml:2: mesh.proxyHttpPort: port 15000 is for the proxy's administration on every machine of the mesh: choose another"},
		{"the agent's port", "mesh:\n  proxyListenPort: 15020\n", "error ashored.yaml:2: mesh.proxyListenPort: port 15020 is for the agent's health checks and metrics on every machine of the mesh: choose another"},
		{"metrics", "mesh:\n  proxyInboundListenPort: 15090\n", "error ashored.yaml:2: mesh.proxyInboundListenPort: port 15090 is for the proxy's metrics on every machine of the mesh: choose another"},
		{"the default outbound port", "mesh:\n  proxyHttpPort: 15001\n", "error ashored.yaml:2: mesh.proxyHttpPort: port 15001 is that of proxyListenPort too: choose another"},
		{"the default inbound port", "mesh:\n  proxyHttpPort: 15006\n", "error ashored.yaml:2: mesh.proxyHttpPort: port 15006 is that of proxyInboundListenPort too: choose another"},
		{"ports", "mesh:\n  proxyHttpPort: 15001\n  proxyListenPort: 15001\n", "error ashored.yaml:2: mesh.proxyHttpPort: port 15001 is that of proxyListenPort too: choose another"},
		{"port", "mesh:\n  proxyListenPort: 70000\n", "error ashored.yaml:2: mesh.proxyListenPort: a port is a number from 1 to 65535, not 70000"},
		{"time", "mesh:\n  connectTimeout: 0s\n", "error ashored.yaml:2: mesh.connectTimeout: the time must be at least 1ms"},
		{"a time that Envoy refuses", "mesh:\n  dnsRefreshRate: 1ms\n", "error ashored.yaml:2: mesh.dnsRefreshRate: proxies need more than 1ms between two queries for a name: write a minute or so"},
		{"format without file", "mesh:\n  accessLogFormat: a\n", "warning ashored.yaml:2: mesh.accessLogFormat: no access log is written: set accessLogFile too, /dev/stdout for instance"},
		{"format", "mesh:\n  accessLogFile: /dev/stdout\n  accessLogFormat: '%NO'\n", "error ashored.yaml:3: mesh.accessLogFormat: \"%NO\" is not a command such as %PROTOCOL%, %REQ(X-ID)% or %REQ(X-ID):20%: write %% for the sign itself"},
		{"JSON format", "mesh:\n  accessLogFile: /dev/stdout\n  accessLogEncoding: JSON\n  accessLogFormat: '[%PROTOCOL%]'\n", "error ashored.yaml:4: mesh.accessLogFormat: with accessLogEncoding JSON the format must be a JSON object of names and formats"},
		{"JSON command", "mesh:\n  accessLogFile: /dev/stdout\n  accessLogEncoding: JSON\n  accessLogFormat: '{\"a\": {\"b\": [\"%NO\"]}}'\n", "error ashored.yaml:4: mesh.accessLogFormat: \"%NO\\\"]}}\" is not a command such as %PROTOCOL%, %REQ(X-ID)% or %REQ(X-ID):20%: write %% for the sign itself"},
		{"file", "mesh:\n  accessLogFile: stdout\n", "error ashored.yaml:2: mesh.accessLogFile: \"stdout\" is not an absolute path: write one, such as /dev/stdout"},
		{"locality", "mesh:\n  localityLbSetting: {failover: [{from: eu}]}\n", "error ashored.yaml:2: mesh.localityLbSetting.failover[0].to: want the name of a region, without zone and wildcard, not \"\""},
		{"root namespace", "mesh:\n  rootNamespace: Root\n", "error ashored.yaml:2: mesh.rootNamespace: \"Root\" is not a name: use at most 63 lower-case letters, digits and \"-\", and begin and end with a letter or digit"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			_, problems := ParseMesh("ashored.yaml", section(t, c.text, "mesh"))
			if len(problems) != 1 {
				t.Fatalf("got %v, want one problem", problems)
			}
			if got := string(problems[0].Severity) + " " + problems[0].String(); got != c.want {
				t.Errorf("got  %s\nwant %s", got, c.want)
			}
		})
	}
}
