package gen

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	"google.golang.org/protobuf/proto"
	networking "istio.io/api/networking/v1alpha3"

	"github.com/ashore-mesh/ashore/config"
	"github.com/ashore-mesh/ashore/internal/intern"
	"github.com/ashore-mesh/ashore/push"
	"github.com/ashore-mesh/ashore/registry"
	"github.com/ashore-mesh/ashore/xds/gen/gentest"
	"github.com/ashore-mesh/ashore/xds/resource"
)

// fuzzServices are what the configuration that is tried out may name.
func fuzzServices() []*registry.Service {
	return []*registry.Service{
		gentest.Service("web", 1, "10.0.0.1", "http/80", "grpc/90", "tcp/91"),
		gentest.Service("raw", 4, "", "tcp/80"),
		gentest.Service("db", 3, "10.0.0.3 2001:2::3", "mysql/3306"),
		gentest.Service("lan", 1, "10.1.0.0/16 10.0.0.5", "tcp/5000"),
		gentest.Service("sniffed", 1, "10.9.0.0/16", "x/80"),
		gentest.Service("secure", 1, "", "https/443"),
		gentest.Service("*.wild.example", 1, "", "tls/443"),
	}
}

// fuzzScopes are what proxies of every kind see of configuration.
func fuzzScopes(objects []*config.Object) map[string]*push.Scope {
	in := push.Inputs{Mesh: &push.Mesh{Config: config.DefaultMesh(), Domain: "cluster.local"}}
	for _, o := range objects {
		in.Objects = in.Objects.With(o.Key, o)
	}
	for _, s := range fuzzServices() {
		in.Services = in.Services.With(s.Key, s)
		e := registry.Endpoint{Address: "10.0.0.200", Namespace: "shop", Labels: map[string]string{"app": "web"}}
		in.Endpoints = in.Endpoints.With(s.Key, &registry.EndpointList{Items: []registry.Endpoint{e}})
	}
	c := push.Build(nil, in)
	var addresses intern.Lists[netip.Addr]
	var labels intern.Lists[push.Label]
	node := push.Node{
		Namespace: "shop",
		IPs:       addresses.Of([]netip.Addr{netip.MustParseAddr("10.0.0.200"), netip.MustParseAddr("2001:db8::1")}),
		Labels:    labels.Of([]push.Label{{Key: "app", Value: "web"}}),
	}
	out := map[string]*push.Scope{}
	add := func(name string, n push.Node) { out[name] = c.Scope(c.Classify(n)) }
	add("redirect", node)
	node.Interception, node.HTTPProxyPort = push.TProxy, 15002
	add("tproxy", node)
	node.Interception = push.None
	node.IPs = addresses.Of([]netip.Addr{netip.MustParseAddr("127.0.0.9")})
	add("none", node)
	node.Type, node.Interception = push.Router, push.Redirect
	add("router", node)
	node.Identity = true
	add("router with identity", node)
	node.Type, node.IPs = push.Sidecar, addresses.Of([]netip.Addr{netip.MustParseAddr("10.0.0.200")})
	add("redirect with identity", node)
	node.Interception = push.None
	add("none with identity", node)
	return out
}

// Whatever passes validation makes listeners that Envoy can take: every field keeps its rules, no
// two listeners have one address, no two filter chains take one connection, and every route
// configuration that a listener names exists.
func FuzzListeners(f *testing.F) {
	files, err := filepath.Glob(filepath.Join("testdata", "*.txtar"))
	if err != nil {
		f.Fatal(err)
	}
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			f.Fatal(err)
		}
		_, text, _ := strings.Cut(string(data), "-- config.yaml --\n")
		text, _, _ = strings.Cut(text, "\n-- ")
		f.Add([]byte(text))
	}
	for _, text := range fuzzSeeds() {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		objects := config.Parse("fuzz.yaml", data).Objects
		if len(objects) == 0 {
			return
		}
		for name, sc := range fuzzScopes(objects) {
			t.Log(name)
			g := New()
			checkListeners(t, g.Set(resource.ListenerType, sc), g.Set(resource.RouteType, sc))
			checkClusters(t, g, sc)
		}
	})
}

// checkListeners fails the test when Envoy would refuse one of the listeners.
func checkListeners(t *testing.T, listeners, routes resource.Set) {
	t.Helper()
	taken := map[string]string{}
	for _, l := range decodeListeners(t, listeners) {
		addresses := []*corev3.Address{l.Address}
		for _, a := range l.AdditionalAddresses {
			addresses = append(addresses, a.Address)
		}
		for _, a := range addresses {
			key := a.String()
			if other, twice := taken[key]; twice {
				t.Errorf("%s and %s have one address: %v", other, l.Name, a)
			}
			taken[key] = l.Name
		}
		if len(l.FilterChains) == 0 {
			t.Errorf("%s has no filter chain", l.Name)
		}
		checkDisjoint(t, l)
	}
	for r := range listeners.All() {
		for _, ref := range r.Refs {
			if ref.TypeURL == resource.RouteType && routes.Get(ref.Name) == nil {
				t.Errorf("%s names the route configuration %s, which does not exist", r.Name, ref.Name)
			}
		}
	}
}

// checkDisjoint fails the test when two filter chains have a condition in common.
func checkDisjoint(t *testing.T, l *listenerv3.Listener) {
	t.Helper()
	seen := map[string]bool{}
	for _, c := range l.FilterChains {
		for _, m := range singleMatches(c.FilterChainMatch) {
			if seen[m] {
				t.Errorf("%s: two filter chains match %s", l.Name, m)
			}
			seen[m] = true
		}
	}
}

// singleMatches are the conditions of a match, one value of each list at a time.
func singleMatches(m *listenerv3.FilterChainMatch) []string {
	rest := proto.CloneOf(m)
	if rest == nil {
		rest = &listenerv3.FilterChainMatch{}
	}
	subnets, names := []string{""}, []string{""}
	for i, p := range rest.PrefixRanges {
		if i == 0 {
			subnets = nil
		}
		subnets = append(subnets, p.String())
	}
	if len(rest.ServerNames) > 0 {
		names = rest.ServerNames
	}
	rest.PrefixRanges, rest.ServerNames = nil, nil
	var out []string
	for _, s := range subnets {
		for _, n := range names {
			out = append(out, strings.Join([]string{s, n, rest.String()}, " "))
		}
	}
	return out
}

// fuzzSeeds are where the fuzzer begins, beside the golden files.
func fuzzSeeds() []string {
	const head = "apiVersion: networking.istio.io/v1\nkind: "
	return []string{
		head + `Sidecar
metadata: {name: s, namespace: shop}
spec:
  ingress:
  - {port: {number: 9080, name: http, protocol: HTTP}, defaultEndpoint: "127.0.0.1:8080"}
  - {port: {number: 15006, name: tcp, protocol: TCP}, bind: 0.0.0.0, captureMode: NONE}
  egress:
  - {port: {number: 8080, name: http, protocol: HTTP}, bind: 127.0.0.1, captureMode: NONE, hosts: ["./*"]}
  - {port: {number: 3128, name: grpc, protocol: GRPC}, bind: "::", hosts: ["./*"]}
  - {bind: "unix:///run/a.sock", hosts: ["./web"], port: {number: 0, name: u, protocol: HTTP}, captureMode: NONE}
  - {hosts: ["*/*"]}
  outboundTrafficPolicy: {mode: REGISTRY_ONLY}
`,
		head + `Sidecar
metadata: {name: s, namespace: shop}
spec:
  egress:
  - {port: {number: 8444, name: tls, protocol: TLS}, bind: 127.0.54.201, captureMode: NONE, hosts: ["./*"]}
  - {port: {number: 80, name: tcp, protocol: TCP}, bind: 127.0.54.202, captureMode: NONE, hosts: ["./*"]}
  - {port: {number: 0, name: tcp, protocol: TCP}, bind: "unix:///run/a.sock", hosts: ["./*"]}
  - {port: {number: 90, name: tcp, protocol: TCP}, bind: "unix:///run/b.sock", hosts: ["./*"]}
  - {port: {number: 3128, name: proxy, protocol: HTTP_PROXY}, bind: 127.0.54.203, hosts: ["./*"]}
`,
		head + `Gateway
metadata: {name: g, namespace: shop}
spec:
  selector: {app: web}
  servers:
  - {port: {number: 80, name: http, protocol: HTTP}, hosts: ["*"], tls: {httpsRedirect: true}}
  - {port: {number: 443, name: a, protocol: HTTPS}, hosts: [a.example, "shop/b.example"], tls: {mode: SIMPLE, serverCertificate: /a.pem, privateKey: /a.key, minProtocolVersion: TLSV1_2}}
  - {port: {number: 443, name: b, protocol: TLS}, hosts: ["*.pass.example"], tls: {mode: PASSTHROUGH}}
  - {port: {number: 9000, name: tcp, protocol: TCP}, hosts: ["*"], bind: "::"}
---
` + head + `VirtualService
metadata: {name: v, namespace: shop}
spec:
  hosts: ["*.pass.example"]
  gateways: [g]
  tls:
  - {match: [{port: 443, sniHosts: ["x.pass.example", "*.pass.example"]}], route: [{destination: {host: web, port: {number: 80}}}]}
  tcp:
  - {match: [{port: 9000}], route: [{destination: {host: web, port: {number: 80}}, weight: 50}, {destination: {host: db, port: {number: 3306}}, weight: 50}]}
`,
		head + `VirtualService
metadata: {name: v, namespace: shop}
spec:
  hosts: [lan.shop.svc.cluster.local, lan]
  tcp:
  - {match: [{port: 5000, destinationSubnets: [10.1.0.0/24, 10.1.2.3], sourceLabels: {app: web}}], route: [{destination: {host: web, port: {number: 80}}}]}
  tls:
  - {match: [{port: 443, sniHosts: [secure, SECURE, "*.wild.example"], destinationSubnets: ["0.0.0.0/0"]}], route: [{destination: {host: web, port: {number: 80}}}]}
`,
		head + `DestinationRule
metadata: {name: d, namespace: shop}
spec:
  host: db
  trafficPolicy: {connectionPool: {tcp: {idleTimeout: 1m, maxConnectionDuration: 1h}}, loadBalancer: {consistentHash: {useSourceIp: true}}}
`,
	}
}

// The same laws for services and egress listeners that meet on few addresses and ports in every
// way, and whatever the order of services is.
func FuzzListenerConflicts(f *testing.F) {
	for seed := range uint64(100) {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, seed uint64) {
		sc := randomScope(rand.New(rand.NewPCG(seed, 1)))
		g := New()
		set := g.Set(resource.ListenerType, sc)
		checkListeners(t, set, g.Set(resource.RouteType, sc))

		turned := *sc
		groups := slices.Clone(sc.Egress.Items())
		for i, e := range groups {
			services := slices.Clone(e.Services.Items())
			slices.Reverse(services)
			groups[i] = withRoutes(gentest.Egress(e.Listener, services...), e.Routes.Items()...)
		}
		var egress intern.Lists[*push.Egress]
		turned.Egress = egress.Of(groups)
		for r := range New().Set(resource.ListenerType, &turned).All() {
			if was := set.Get(r.Name); was == nil || was.Version() != r.Version() {
				t.Errorf("%s depends on the order of services", r.Name)
			}
		}
	})
}

// randomScope is what a sidecar sees of a few services, egress listeners and routes.
func randomScope(r *rand.Rand) *push.Scope {
	pick := func(of ...string) string { return of[r.IntN(len(of))] }
	services := make([]*registry.Service, 1+r.IntN(8))
	for i := range services {
		ports := make([]string, 1+r.IntN(3))
		for j := range ports {
			ports[j] = fmt.Sprintf("%s/%d", pick("http", "grpc", "tcp", "mysql", "https", "tls", "x", "udp"),
				[]int{80, 81, 443, 15001, 15006, 15021}[r.IntN(6)]+j*1000)
		}
		vips := pick("", "", "10.0.0.1", "10.0.0.2", "10.1.0.0/16", "10.0.0.1 2001:2::1", "::/0", "0.0.0.0/0",
			"::ffff:10.0.0.1")
		services[i] = gentest.Service(fmt.Sprintf("s%d.%s", i, pick("a.example", "b.example")), r.IntN(3), vips, ports...)
		if vips == "" {
			services[i].AutoAddresses = []netip.Addr{netip.AddrFrom4([4]byte{240, 240, 0, byte(i + 1)})}
		}
	}
	var groups []*push.Egress
	for range r.IntN(3) {
		l := &networking.IstioEgressListener{
			Bind:        pick("", "127.0.0.1", "0.0.0.0", "::", "10.0.0.1"),
			CaptureMode: networking.CaptureMode(r.IntN(3)),
			Port: &networking.SidecarPort{Number: []uint32{80, 443, 15001, 9000}[r.IntN(4)],
				Protocol: pick("HTTP", "TCP", "TLS", "HTTP_PROXY", "MYSQL")},
		}
		groups = append(groups, gentest.Egress(l, services[:r.IntN(len(services)+1)]...))
	}
	routes := []*push.VirtualService{
		testVS("tcp", &networking.VirtualService{Hosts: []string{"*.a.example"}, Tcp: []*networking.TCPRoute{{
			Match: []*networking.L4MatchAttributes{{Port: uint32(r.IntN(2) * 80),
				DestinationSubnets: []string{"10.1.0.0/16", pick("10.2.0.0/16", "::/0")}}},
			Route: []*networking.RouteDestination{tcpRoute("x", 1, int32(r.IntN(2))),
				tcpRoute("y", 1, int32(r.IntN(2)))},
		}}}),
		testVS("tls", &networking.VirtualService{Hosts: []string{"*"}, Tls: []*networking.TLSRoute{{
			Match: []*networking.TLSMatchAttributes{{SniHosts: []string{"a", pick("b", "*", "A")}},
				{SniHosts: []string{"b", "c"}, DestinationSubnets: []string{pick("10.1.0.0/16", "10.3.0.0/16")}}},
			Route: []*networking.RouteDestination{tcpRoute("x", 1, 0)},
		}}}),
	}
	if r.IntN(4) > 0 {
		groups = append(groups, gentest.Egress(nil, services...))
	}
	for _, e := range groups {
		withRoutes(e, routes[:r.IntN(3)]...)
	}
	sc := gentest.Scope(groups...)
	sc.Interception = push.Interception(r.IntN(3))
	sc.CapturesDNS = r.IntN(2) == 0
	sc.HTTPProxyPort = []uint32{0, 80, 15002}[r.IntN(3)]
	sc.Own = testOwn(pick("10.0.0.9", "2001:db8::1"), gentest.Service("self", 1, "", "http/80", "x/7006"))
	if sc.Interception == push.None {
		sc.Bind = netip.MustParseAddr("127.0.0.9")
	}
	return sc
}
