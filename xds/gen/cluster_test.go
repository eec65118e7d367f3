package gen

import (
	"fmt"
	"net/netip"
	"slices"
	"testing"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/encoding/protojson"
	networking "istio.io/api/networking/v1alpha3"

	"github.com/ashore-mesh/ashore/config"
	"github.com/ashore-mesh/ashore/internal/goldentest"
	"github.com/ashore-mesh/ashore/internal/intern"
	"github.com/ashore-mesh/ashore/push"
	"github.com/ashore-mesh/ashore/registry"
	"github.com/ashore-mesh/ashore/xds/gen/agent"
	"github.com/ashore-mesh/ashore/xds/gen/gentest"
	"github.com/ashore-mesh/ashore/xds/resource"
)

// ruleScope is the scope of a sidecar in a mesh of one service, web.example.com, with a traffic
// policy.
func ruleScope(t *testing.T, s *registry.Service, policy string, endpoints ...registry.Endpoint) *push.Scope {
	t.Helper()
	in := push.Inputs{Mesh: &push.Mesh{Config: config.DefaultMesh(), Domain: "cluster.local"}}
	in.Services = in.Services.With(s.Key, s)
	in.Endpoints = in.Endpoints.With(s.Key, &registry.EndpointList{Items: endpoints})
	if policy != "" {
		spec := &networking.DestinationRule{Host: s.Host, TrafficPolicy: &networking.TrafficPolicy{}}
		if err := protojson.Unmarshal([]byte(policy), spec.TrafficPolicy); err != nil {
			t.Fatal(err)
		}
		k := config.Key{Kind: config.DestinationRule, Namespace: s.Namespace, Name: "web"}
		in.Objects = in.Objects.With(k, &config.Object{Key: k, Spec: spec})
	}
	return (&scopes{node: goldentest.Proxy{Addresses: []string{"10.9.9.9"}, Namespace: "shop"}.Node(t)}).next(in)
}

// Envoy takes every field of a traffic policy, without a warning.
func TestEnvoyAcceptsPolicies(t *testing.T) {
	t.Parallel()
	var all []*clusterv3.Cluster
	for name, policy := range map[string]string{
		"retry budget":             `{"retryBudget": {"percent": 30, "minRetryConcurrency": 4, "budgetInterval": "1s"}}`,
		"retry budget of defaults": `{"retryBudget": {}}`,
		"keep alive":               `{"connectionPool": {"http": {"h2UpgradePolicy": "UPGRADE", "maxConcurrentStreams": 5, "http2KeepAlive": {"interval": "10s", "timeout": "2s"}}}}`,
		"one error code":           `{"outlierDetection": {"consecutive5xxErrors": 3, "outlierDetectionHttpErrorCodes": [429]}}`,
		"error codes":              `{"outlierDetection": {"consecutive5xxErrors": 3, "outlierDetectionHttpErrorCodes": [429, 503]}}`,
		"consecutive errors":       `{"outlierDetection": {"consecutiveErrors": 3}}`,
		"all outliers":             `{"outlierDetection": {"consecutive5xxErrors": 0, "consecutiveGatewayErrors": 5, "interval": "1s", "baseEjectionTime": "3s", "maxEjectionPercent": 100, "minHealthPercent": 50, "splitExternalLocalOriginErrors": true, "consecutiveLocalOriginFailures": 2}}`,
		"big ring":                 `{"loadBalancer": {"consistentHash": {"useSourceIp": true, "ringHash": {"minimumRingSize": 99999999}}}}`,
		"old ring":                 `{"loadBalancer": {"consistentHash": {"useSourceIp": true, "minimumRingSize": 10}}}`,
		"ring of defaults":         `{"loadBalancer": {"consistentHash": {"useSourceIp": true, "ringHash": {}}}}`,
		"maglev of defaults":       `{"loadBalancer": {"consistentHash": {"useSourceIp": true, "maglev": {}}}}`,
		"least connections":        `{"loadBalancer": {"simple": "LEAST_CONN", "warmup": {"duration": "10s"}}}`,
		"random":                   `{"loadBalancer": {"simple": "RANDOM"}}`,
		"passthrough":              `{"loadBalancer": {"simple": "PASSTHROUGH", "localityLbSetting": {"distribute": [{"from": "*", "to": {"a": 100}}]}}, "outlierDetection": {"consecutive5xxErrors": 3}, "tls": {"mode": "SIMPLE"}}`,
		"tls with revocations":     `{"tls": {"mode": "SIMPLE", "sni": "a", "caCertificates": "/ca", "caCrl": "/crl", "subjectAltNames": ["a", "a@b", "spiffe://a/b", "10.0.0.1"]}}`,
	} {
		for _, resolution := range []registry.Resolution{registry.Static, registry.DNS, registry.DNSRoundRobin,
			registry.Passthrough} {
			web := gentest.Service("web.example.com", 1, "", "http/80")
			web.Resolution = resolution
			sc := ruleScope(t, web, policy, registry.Endpoint{Address: "a.example.com",
				Locality: registry.ParseLocality("a")})
			c := decoded[*clusterv3.Cluster](t, New().Set(resource.ClusterType, sc))["outbound|80||web.example.com"]
			c.Name = fmt.Sprintf("%s %d", name, resolution)
			if c.LoadAssignment != nil {
				c.LoadAssignment.ClusterName = c.Name
			}
			if c.GetType() == clusterv3.Cluster_ORIGINAL_DST {
				// Envoy 1.40 crashes when such a cluster stands in its bootstrap and takes secrets
				// by ADS; by CDS it takes them (TestEnvoyWarmsClusters).
				c.TransportSocket = nil
			}
			all = append(all, c)
		}
	}
	envoyAccepts(t, nil, all)
}

// How names are resolved depends on what the client has; without names there is nothing to resolve.
func TestNamesToResolve(t *testing.T) {
	t.Parallel()
	dns, robin := gentest.Service("web.example.com", 1, "", "http/80"), gentest.Service("web.example.com", 1, "", "http/80")
	dns.Resolution, robin.Resolution = registry.DNS, registry.DNSRoundRobin
	a, b := registry.Endpoint{Address: "a.example.com"}, registry.Endpoint{Address: "b.example.com"}
	for name, c := range map[string]struct {
		service   *registry.Service
		endpoints []registry.Endpoint
		want      string
		hosts     int
	}{
		"dns":               {dns, []registry.Endpoint{b, a}, "envoy.cluster.dns", 2},
		"robin takes one":   {robin, []registry.Endpoint{b, a}, "envoy.cluster.dns", 1},
		"nothing":           {dns, nil, "STATIC", 0},
		"nothing for robin": {robin, []registry.Endpoint{{Address: "unix:///a"}}, "STATIC", 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			sc := ruleScope(t, c.service, "", c.endpoints...)
			got := decoded[*clusterv3.Cluster](t, New().Set(resource.ClusterType, sc))["outbound|80||web.example.com"]
			kind := got.GetClusterType().GetName()
			if kind == "" {
				kind = got.GetType().String()
			}
			hosts := 0
			for _, g := range got.GetLoadAssignment().GetEndpoints() {
				hosts += len(g.LbEndpoints)
			}
			if kind != c.want || hosts != c.hosts {
				t.Errorf("%s of %d names, want %s of %d", kind, hosts, c.want, c.hosts)
			}
			envoyAccepts(t, nil, []*clusterv3.Cluster{got})
		})
	}
}

// The pool of a Sidecar's listener goes before the Sidecar's, which goes before that of a rule; and
// nothing is sent to the proxy's own listener.
func TestWorkloadClusters(t *testing.T) {
	t.Parallel()
	pool := func(n int32) *networking.ConnectionPoolSettings {
		return &networking.ConnectionPoolSettings{Tcp: &networking.ConnectionPoolSettings_TCPSettings{MaxConnections: n}}
	}
	port := func(n uint32) *networking.SidecarPort {
		return &networking.SidecarPort{Number: n, Protocol: "TCP", Name: "tcp"}
	}
	web := gentest.Service("web.example.com", 1, "", "tcp/80")
	var (
		inbounds intern.Lists[push.Inbound]
		addrs    intern.Lists[netip.Addr]
	)
	redirected := ruleScope(t, web, `{"connectionPool": {"tcp": {"maxConnections": 1}}}`)
	for name, c := range map[string]struct {
		sidecar      *networking.Sidecar
		interception push.Interception
		address      string
		want         []string
	}{
		"rule": {nil, push.Redirect, "10.0.0.1", []string{"inbound|80|| ORIGINAL_DST  1"}},
		"sidecar": {
			&networking.Sidecar{InboundConnectionPool: pool(2)}, push.Redirect, "10.0.0.1", []string{"inbound|80|| ORIGINAL_DST  2"},
		},
		"listener": {
			&networking.Sidecar{InboundConnectionPool: pool(2), Ingress: []*networking.IstioIngressListener{
				{Port: port(80), ConnectionPool: pool(3)}, {Port: port(81), DefaultEndpoint: "127.0.0.1:8081"}, {Port: port(82), DefaultEndpoint: "0.0.0.0:8082"},
			}},
			push.Redirect, "10.0.0.1",
			[]string{"inbound|80|| ORIGINAL_DST  3", "inbound|81|| STATIC 127.0.0.1:8081 2",
				"inbound|82|| STATIC 10.0.0.1:8082 2"},
		},
		"nothing without redirection": {nil, push.None, "127.0.0.7", nil},
		"bound": {
			&networking.Sidecar{Ingress: []*networking.IstioIngressListener{{Port: port(80)},
				{Port: port(83), DefaultEndpoint: "unix:///a"}}},
			push.None, "127.0.0.7", []string{"inbound|80|| STATIC 127.0.0.1:80 1", "inbound|83|| STATIC /a 4294967295"},
		},
		"to itself": {
			&networking.Sidecar{Ingress: []*networking.IstioIngressListener{{Port: port(80)},
				{Port: port(81), DefaultEndpoint: "0.0.0.0:81"}}},
			push.None, "127.0.0.1", []string{"inbound|80|| STATIC  1", "inbound|81|| STATIC  4294967295"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			sc := *redirected
			sc.Interception = c.interception
			sc.Own = &push.Own{
				Addresses: addrs.Of([]netip.Addr{netip.MustParseAddr(c.address)}),
				Inbound:   inbounds.Of([]push.Inbound{{Service: web, Port: web.Ports[0], TargetPort: 80}}),
			}
			if c.sidecar != nil {
				sc.Sidecar = &push.SidecarConfig{Spec: c.sidecar}
			}
			var (
				got []string
				all []*clusterv3.Cluster
			)
			for _, m := range decoded[*clusterv3.Cluster](t, resource.Set{Own: New().Set(resource.ClusterType, &sc).Own}) {
				all = append(all, m)
				got = append(got, describeWorkload(m))
			}
			slices.Sort(got)
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Errorf("inbound clusters (-want +got):\n%s", diff)
			}
			envoyAccepts(t, nil, all)
		})
	}
}

// describeWorkload is "name type target connections".
func describeWorkload(c *clusterv3.Cluster) string {
	to := ""
	for _, g := range c.GetLoadAssignment().GetEndpoints() {
		to = addressText(g.LbEndpoints[0].GetEndpoint().Address)
	}
	return fmt.Sprintf("%s %s %s %d", c.Name, c.GetType(), to, c.CircuitBreakers.Thresholds[0].MaxConnections.Value)
}

func addressText(a *corev3.Address) string {
	if p := a.GetPipe(); p != nil {
		return p.Path
	}
	return fmt.Sprintf("%s:%d", a.GetSocketAddress().Address, a.GetSocketAddress().GetPortValue())
}

// Every file that a cluster uses is a secret, and no other.
func TestSecretsOfClusters(t *testing.T) {
	t.Parallel()
	for policy, want := range map[string][]string{
		`{}`:                           nil,
		`{"tls": {"mode": "DISABLE"}}`: nil,
		`{"tls": {"mode": "SIMPLE"}}`:  {"file-root:system"},
		`{"tls": {"mode": "SIMPLE", "caCrl": "/l"}}`: {"file-root:system~/l"},
		`{"tls": {"mode": "SIMPLE", "caCertificates": "/a", "caCrl": "/l"}, "portLevelSettings": [{"port": {"number": 81}, "tls": {"mode": "SIMPLE", "caCertificates": "/a"}}]}`: {"file-root:/a", "file-root:/a~/l"},
		`{"tls": {"mode": "SIMPLE", "insecureSkipVerify": true}}`:                                                                                                 {},
		`{"tls": {"mode": "MUTUAL", "clientCertificate": "/c", "privateKey": "/k", "caCertificates": "/r"}}`:                                                      {"file-cert:/c~/k", "file-root:/r"},
		`{"tls": {"mode": "SIMPLE", "caCertificates": "/a"}, "portLevelSettings": [{"port": {"number": 81}, "tls": {"mode": "SIMPLE", "caCertificates": "/b"}}]}`: {"file-root:/a", "file-root:/b"},
	} {
		set := New().Set(resource.SecretType, ruleScope(t, gentest.Service("web.example.com", 1, "", "http/80", "http/81"), policy))
		var got []string
		for r := range set.All() {
			got = append(got, r.Name)
		}
		if !slices.Equal(got, want) {
			t.Errorf("%s: got %v, want %v", policy, got, want)
		}
	}
}

// Services without an address resolve to their endpoints, as far as those take traffic.
func TestNameTable(t *testing.T) {
	t.Parallel()
	headless := gentest.Service("web.example.com", 1, "", "tcp/80")
	headless.Resolution = registry.Passthrough
	prefix, plain := gentest.Service("web.example.com", 1, "10.0.0.0/8", "tcp/80"), gentest.Service("web.example.com", 1, "",
		"tcp/80")
	given := gentest.Service("web.example.com", 1, "", "tcp/80")
	given.AutoAddresses = []netip.Addr{netip.MustParseAddr("240.240.0.1"), netip.MustParseAddr("2001:2::1")}
	several := gentest.Service("web.example.com", 1, "10.0.0.1 fd00::1 10.1.0.0/16", "tcp/80")
	ep := func(a string, h registry.Health) registry.Endpoint { return registry.Endpoint{Address: a, Health: h} }
	for name, c := range map[string]struct {
		service  *registry.Service
		captures bool
		want     []string
	}{
		"headless":        {headless, true, []string{"web.example.com: 1=10.0.0.7 1=fd00::7 2=External"}},
		"no own":          {plain, true, []string{"web.example.com: 1=10.0.0.7 1=fd00::7 2=External"}},
		"given":           {given, true, []string{"web.example.com: 1=240.240.0.1 1=2001:2::1 2=External"}},
		"given, no DNS":   {given, false, []string{"web.example.com: 1=10.0.0.7 1=fd00::7 2=External"}},
		"prefix":          {prefix, true, nil},
		"several":         {several, true, []string{"web.example.com: 1=10.0.0.1 1=fd00::1 2=External"}},
		"several, no DNS": {several, false, []string{"web.example.com: 1=10.0.0.1 1=fd00::1 2=External"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			sc := ruleScope(t, c.service, "", ep("10.0.0.7", registry.Healthy), ep("10.0.0.8", registry.Unhealthy),
				ep("a.example.com", registry.Healthy), ep("fd00::7", registry.Healthy), ep("10.0.0.7",
					registry.Healthy))
			sc.CapturesDNS = c.captures
			set := New().Set(resource.NameTableType, sc)
			if diff := cmp.Diff(c.want, decodeNames(t, set.Get(agent.NameTableName).Body())); diff != "" {
				t.Errorf("names (-want +got):\n%s", diff)
			}
		})
	}
}
