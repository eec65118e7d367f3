package gen

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/proto"
	mesh "istio.io/api/mesh/v1alpha1"

	"github.com/ashore-mesh/ashore/config"
	"github.com/ashore-mesh/ashore/internal/feed"
	"github.com/ashore-mesh/ashore/internal/intern"
	"github.com/ashore-mesh/ashore/push"
	"github.com/ashore-mesh/ashore/registry"
	"github.com/ashore-mesh/ashore/registry/entry"
	"github.com/ashore-mesh/ashore/xds/gen/gentest"
	"github.com/ashore-mesh/ashore/xds/resource"
)

// testMesh is everything that the scopes of a test are made of.
type testMesh struct {
	t       testing.TB
	inputs  push.Inputs
	derive  *entry.Deriver
	context *push.Context
}

// meshOf builds a mesh from configuration text.
func meshOf(t testing.TB, text string) *testMesh {
	t.Helper()
	m := &testMesh{t: t, derive: entry.New(nil)}
	m.inputs.Mesh = &push.Mesh{Config: config.DefaultMesh(), Domain: "cluster.local"}
	m.apply(text)
	return m
}

// apply adds or replaces the objects of text.
func (m *testMesh) apply(text string) {
	m.t.Helper()
	result := config.Parse("test.yaml", []byte(text))
	for _, p := range result.Problems {
		if p.Severity == feed.Error {
			m.t.Fatalf("line %d: %s: %s", p.Line, p.Field, p.Text)
		}
	}
	for _, o := range result.Objects {
		m.inputs.Objects = m.inputs.Objects.With(o.Key, o)
	}
	for _, u := range m.derive.Derive(m.inputs.Objects).Updates {
		for _, in := range u.Items {
			m.inputs.Services = m.inputs.Services.With(in.Service.Key, in.Service)
			m.inputs.Endpoints = m.inputs.Endpoints.With(in.Service.Key, in.Endpoints)
		}
	}
	m.context = push.Build(m.context, m.inputs)
}

// sidecar is the scope of a sidecar in a namespace; labels are "key=value".
func (m *testMesh) sidecar(namespace string, labels ...string) *push.Scope {
	return m.context.Scope(m.context.Classify(testNode(push.Sidecar, namespace, labels...)))
}

// router is the scope of a router in namespace "edge".
func (m *testMesh) router(labels ...string) *push.Scope {
	return m.context.Scope(m.context.Classify(testNode(push.Router, "edge", labels...)))
}

func testNode(typ push.NodeType, namespace string, labels ...string) push.Node {
	var ips intern.Lists[netip.Addr]
	var all intern.Lists[push.Label]
	var list []push.Label
	for _, l := range labels {
		k, v, _ := strings.Cut(l, "=")
		list = append(list, push.Label{Key: k, Value: v})
	}
	return push.Node{
		Type: typ, ID: "test." + namespace, Namespace: namespace, Labels: all.Of(list),
		IPs: ips.Of([]netip.Addr{netip.MustParseAddr("10.9.9.9")}),
	}
}

// routesOf decodes the route configurations of a scope and checks each against Envoy's rules.
func routesOf(t testing.TB, g *Generator, sc *push.Scope) map[string]*routev3.RouteConfiguration {
	t.Helper()
	out := map[string]*routev3.RouteConfiguration{}
	for r := range g.Set(resource.RouteType, sc).All() {
		out[r.Name] = decodeRoutes(t, r)
	}
	return out
}

func decodeRoutes(t testing.TB, r *resource.Resource) *routev3.RouteConfiguration {
	t.Helper()
	rc := &routev3.RouteConfiguration{}
	if err := proto.Unmarshal(r.Body(), rc); err != nil {
		t.Fatalf("%s: %v", r.Name, err)
	}
	if err := gentest.ValidateAll(rc); err != nil {
		t.Errorf("%s: %v", r.Name, err)
	}
	if len(resource.Encode(rc)) != len(r.Body()) {
		t.Errorf("%s: the parts put together are not the encoding of the whole", r.Name)
	}
	if rc.Name != r.Name {
		t.Errorf("resource %s holds %s", r.Name, rc.Name)
	}
	checkDomains(t, rc)
	checkRefs(t, r, rc)
	return rc
}

// checkDomains holds Envoy's rule that a domain stands in one virtual host.
func checkDomains(t testing.TB, rc *routev3.RouteConfiguration) {
	t.Helper()
	domains, names := map[string]string{}, map[string]bool{}
	for _, vh := range rc.VirtualHosts {
		if names[vh.Name] {
			t.Errorf("%s: two virtual hosts %q", rc.Name, vh.Name)
		}
		names[vh.Name] = true
		for _, d := range vh.Domains {
			if other, dup := domains[strings.ToLower(d)]; dup {
				t.Errorf("%s: domain %q in %q and %q", rc.Name, d, other, vh.Name)
			}
			domains[strings.ToLower(d)] = vh.Name
		}
	}
}

// checkRefs holds that a resource refers to exactly the clusters that it names.
func checkRefs(t testing.TB, r *resource.Resource, rc *routev3.RouteConfiguration) {
	t.Helper()
	var want, got []string
	for _, vh := range rc.VirtualHosts {
		for _, route := range vh.Routes {
			want = append(want, namedClusters(route)...)
		}
	}
	for _, ref := range r.Refs {
		if ref.TypeURL != resource.ClusterType {
			t.Errorf("%s: ref of type %s", r.Name, ref.TypeURL)
		}
		got = append(got, ref.Name)
	}
	slices.Sort(want)
	slices.Sort(got)
	if d := cmp.Diff(slices.Compact(want), got); d != "" {
		t.Errorf("%s: refs (-named +got):\n%s", r.Name, d)
	}
}

// hostLines writes virtual hosts as "name [domains] cluster cluster".
func hostLines(rc *routev3.RouteConfiguration) []string {
	var out []string
	for _, vh := range rc.GetVirtualHosts() {
		line := vh.Name + " " + fmt.Sprint(vh.Domains)
		for _, r := range vh.Routes {
			if c := namedClusters(r); len(c) > 0 {
				line += " " + strings.Join(c, "+")
			} else {
				line += " " + strings.ReplaceAll(fmt.Sprintf("%T", r.Action), "*routev3.Route_", "")
			}
		}
		if vh.RequireTls != routev3.VirtualHost_NONE {
			line += " tls"
		}
		out = append(out, line)
	}
	return out
}

const (
	// shopServices are two services with short names and one without.
	shopServices = `
apiVersion: networking.istio.io/v1
kind: ServiceEntry
metadata: {name: web, namespace: shop, creationTimestamp: "2026-01-02T00:00:00Z"}
spec:
  hosts: [web.shop.svc.cluster.local]
  addresses: [10.0.0.1]
  ports: [{number: 80, name: http, protocol: HTTP}, {number: 9090, name: admin, protocol: HTTP}]
  resolution: STATIC
  endpoints: [{address: 10.1.0.1}]
---
apiVersion: networking.istio.io/v1
kind: ServiceEntry
metadata: {name: api, namespace: shop, creationTimestamp: "2026-01-01T00:00:00Z"}
spec:
  hosts: [api.example.com]
  addresses: [10.0.0.2, "2001:db8::2", 10.5.0.0/16]
  ports: [{number: 80, name: http, protocol: HTTP}]
  resolution: STATIC
  endpoints: [{address: 10.1.0.2}]
---
apiVersion: networking.istio.io/v1
kind: ServiceEntry
metadata: {name: wild, namespace: shop}
spec:
  hosts: ["*.wild.com"]
  ports: [{number: 8080, name: http, protocol: HTTP}]
  resolution: NONE
  location: MESH_EXTERNAL
`
)

// onePort is a service with a single port.
const onePort = `
---
apiVersion: networking.istio.io/v1
kind: ServiceEntry
metadata: {name: one, namespace: shop}
spec:
  hosts: [one.x]
  ports: [{number: 7000, name: http, protocol: HTTP}]
  resolution: STATIC
`

// vsYAML makes a VirtualService's text of its hosts and what follows in its spec.
func vsYAML(name, hosts, rest string) string {
	return "\n---\napiVersion: networking.istio.io/v1\nkind: VirtualService\nmetadata: {name: " + name + ", namespace: shop}\nspec:\n  hosts: " + hosts + "\n" + rest
}

// toCluster is an HTTP route to a host on a port.
func toCluster(host string, port int) string {
	return fmt.Sprintf("  - route: [{destination: {host: %s, port: {number: %d}}}]\n", host, port)
}

func TestOutboundHosts(t *testing.T) {
	t.Parallel()
	const (
		web   = "web.shop.svc.cluster.local:80 [web.shop.svc.cluster.local web.shop.svc.cluster.local. web.shop web.shop. web.shop.svc web.shop.svc. 10.0.0.1] "
		api   = "api.example.com:80 [api.example.com api.example.com. 10.0.0.2 [2001:db8::2]] "
		other = "allow_any [*] PassthroughCluster"
		toWeb = "outbound|80||web.shop.svc.cluster.local"
		toAPI = "outbound|80||api.example.com"
	)
	tests := []struct {
		name, text string
		route      string
		want       []string
	}{
		{"services of one port", "", "80", []string{api + toAPI, web + toWeb, other}},
		{"a wildcard service", "", "8080", []string{"*.wild.com:8080 [*.wild.com] outbound|8080||*.wild.com", other}},
		{"an exact host's routes", vsYAML("v", "[web]", "  http:\n"+toCluster("api.example.com", 80)), "80", []string{api + toAPI, web + toAPI, other}},
		{"exact before wildcard, whatever the age",
			vsYAML("a", "['*.com']", "  http:\n"+toCluster("a.example", 1)) + vsYAML("b", "[api.example.com]",
				"  http:\n"+toCluster("b.example", 2)),
			"80", []string{api + "outbound|2||b.example", web + toWeb, other}},
		{"the longer wildcard",
			vsYAML("a", "['*.com']", "  http:\n"+toCluster("a.example", 1)) + vsYAML("b", "['*.example.com']",
				"  http:\n"+toCluster("b.example", 2)),
			"80", []string{api + "outbound|2||b.example", web + toWeb, other}},
		{"of equal hosts the older",
			vsYAML("a", "[api.example.com]", "  http:\n"+toCluster("a.example", 1)) + vsYAML("b", "[api.example.com]",
				"  http:\n"+toCluster("b.example", 2)),
			"80", []string{api + "outbound|1||a.example", web + toWeb, other}},
		{"one that has no route for the port gives way",
			vsYAML("a", "[api.example.com]",
				"  http:\n  - match: [{port: 81}]\n    route: [{destination: {host: a.example}}]\n") + vsYAML("b", "['*.com']", "  http:\n"+toCluster("b.example", 2)),
			"80", []string{api + "outbound|2||b.example", web + toWeb, other}},
		{"a host that no registry knows is served on port 80",
			vsYAML("a", "[foreign.org]", "  http:\n"+toCluster("a.example", 1)),
			"80", []string{api + toAPI, "foreign.org:80 [foreign.org foreign.org.] outbound|1||a.example", web + toWeb, other}},
		{"and on no other", vsYAML("a", "[foreign.org]", "  http:\n"+toCluster("a.example", 1)), "9090",
			[]string{"web.shop.svc.cluster.local:9090 [web.shop.svc.cluster.local web.shop.svc.cluster.local. web.shop web.shop. web.shop.svc web.shop.svc. 10.0.0.1] outbound|9090||web.shop.svc.cluster.local", other}},
		{"unless its VirtualService governs a service there", vsYAML("a", "[foreign.org, web]", "  http:\n"+toCluster("a.example", 1)), "9090",
			[]string{"foreign.org:9090 [foreign.org foreign.org.] outbound|1||a.example",
				"web.shop.svc.cluster.local:9090 [web.shop.svc.cluster.local web.shop.svc.cluster.local. web.shop web.shop. web.shop.svc web.shop.svc. 10.0.0.1] outbound|1||a.example", other}},
		{"or a wildcard service covers it", vsYAML("a", "[x.wild.com]", "  http:\n"+toCluster("a.example", 1)), "8080",
			[]string{"*.wild.com:8080 [*.wild.com] outbound|8080||*.wild.com",
				"x.wild.com:8080 [x.wild.com x.wild.com.] outbound|1||a.example", other}},
		{"a foreign host takes a short name and an address",
			vsYAML("a", "[web.shop, 10.0.0.2]", "  http:\n"+toCluster("a.example", 1)), "80",
			[]string{"10.0.0.2:80 [10.0.0.2] outbound|1||a.example",
				"api.example.com:80 [api.example.com api.example.com. [2001:db8::2]] " + toAPI,
				"web.shop.svc.cluster.local:80 [web.shop.svc.cluster.local web.shop.svc.cluster.local. web.shop.svc web.shop.svc. 10.0.0.1] " + toWeb,
				"web.shop:80 [web.shop web.shop.] outbound|1||a.example", other}},
		{"the destination's only port", vsYAML("a", "[web]", "  http:\n  - match: [{port: 80}]\n    route: [{destination: {host: one.x}}]\n") + onePort, "80",
			[]string{api + toAPI, web + "outbound|7000||one.x", other}},
		{"the called port of a destination with several", vsYAML("a", "[api.example.com]", "  http:\n  - route: [{destination: {host: web, subset: v1}}]\n"), "80",
			[]string{api + "outbound|80|v1|web.shop.svc.cluster.local", web + toWeb, other}},
		{"weights and mirrors", vsYAML("a", "[api.example.com]", `  http:
  - route: [{destination: {host: a.x, port: {number: 1}}, weight: 60}, {destination: {host: b.x, port: {number: 2}}, weight: 40}, {destination: {host: c.x}, weight: 0}]
    mirrors: [{destination: {host: m.x, port: {number: 3}}, percentage: {value: 5}}, {destination: {host: n.x}, percentage: {value: 0}}]
`), "80", []string{api + "outbound|1||a.x+outbound|2||b.x+outbound|3||m.x", web + toWeb, other}},
		{"a domain twice: the older service has it", `
apiVersion: networking.istio.io/v1
kind: ServiceEntry
metadata: {name: twin, namespace: shop, creationTimestamp: "2025-01-01T00:00:00Z"}
spec:
  hosts: [zoo.example.com]
  addresses: [10.0.0.1]
  ports: [{number: 80, name: http, protocol: HTTP}]
  resolution: STATIC
`, "80", []string{api + toAPI, "web.shop.svc.cluster.local:80 [web.shop.svc.cluster.local web.shop.svc.cluster.local. web.shop web.shop. web.shop.svc web.shop.svc.] " + toWeb,
			"zoo.example.com:80 [zoo.example.com zoo.example.com. 10.0.0.1] outbound|80||zoo.example.com", other}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			sc := meshOf(t, shopServices+"\n---\n"+tt.text).sidecar("elsewhere")
			got := routesOf(t, New(), sc)[tt.route]
			if d := cmp.Diff(tt.want, hostLines(got)); d != "" {
				t.Errorf("virtual hosts (-want +got):\n%s", d)
			}
		})
	}
}

// The policy of a Sidecar goes before the mesh's.
func TestUnknownHosts(t *testing.T) {
	t.Parallel()
	block := &mesh.MeshConfig_OutboundTrafficPolicy{Mode: mesh.MeshConfig_OutboundTrafficPolicy_REGISTRY_ONLY}
	sidecar := func(policy string) string {
		return "\n---\napiVersion: networking.istio.io/v1\nkind: Sidecar\nmetadata: {name: default, namespace: shop}\nspec:\n  outboundTrafficPolicy: " + policy + "\n  egress: [{hosts: ['*/*']}]\n"
	}
	tests := []struct {
		name, text string
		mesh       *mesh.MeshConfig_OutboundTrafficPolicy
		want       string
	}{
		{"the default", "", nil, "allow_any [*] PassthroughCluster"},
		{"registry only", "", block, "block_all [*] DirectResponse"},
		{"a Sidecar allows", sidecar("{mode: ALLOW_ANY}"), block, "allow_any [*] PassthroughCluster"},
		{"a Sidecar forbids", sidecar("{mode: REGISTRY_ONLY}"), nil, "block_all [*] DirectResponse"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			m := meshOf(t, shopServices+tt.text)
			if tt.mesh != nil {
				c := config.DefaultMesh()
				c.OutboundTrafficPolicy = tt.mesh
				m.inputs.Mesh = &push.Mesh{Config: c, Domain: "cluster.local"}
				m.context = push.Build(nil, m.inputs)
			}
			lines := hostLines(routesOf(t, New(), m.sidecar("shop"))["80"])
			if got := lines[len(lines)-1]; got != tt.want {
				t.Errorf("got %q, want %q", got, tt.want)
			}
		})
	}
}

// What did not change keeps its pointer.
func TestRoutesAreRemembered(t *testing.T) {
	t.Parallel()
	g := New()
	m := meshOf(t, shopServices+vsYAML("a", "[web]", "  http:\n"+toCluster("api.example.com", 80)))
	first := g.Set(resource.RouteType, m.sidecar("shop"))
	if again := g.Set(resource.RouteType, m.sidecar("shop")); again != first {
		t.Error("equal inputs gave another set")
	}
	m.apply(vsYAML("a", "[web]",
		"  http:\n  - match: [{port: 80}]\n    route: [{destination: {host: api.example.com}}]\n"))
	second := g.Set(resource.RouteType, m.sidecar("shop"))
	if second == first {
		t.Fatal("a changed VirtualService changed nothing")
	}
	for name, same := range map[string]bool{"80": false, "8080": true, "9090": false} {
		if got := second.Get(name) == first.Get(name); got != same {
			t.Errorf("%s: the same resource: %v, want %v", name, got, same)
		}
	}
	m.inputs.Endpoints = m.inputs.Endpoints.With(registry.Key{Host: "api.example.com", Namespace: "shop"},
		&registry.EndpointList{})
	m.context = push.Build(m.context, m.inputs)
	if third := g.Set(resource.RouteType, m.sidecar("shop")); third != second {
		t.Error("a changed endpoint changed routes")
	}
}

// Requests that reach a port for all, or a service alone, find their virtual hosts.
func TestRouteNames(t *testing.T) {
	t.Parallel()
	const sniffed = `
---
apiVersion: networking.istio.io/v1
kind: ServiceEntry
metadata: {name: sniffed, namespace: shop}
spec:
  hosts: [sniffed.x]
  addresses: [10.0.0.9]
  ports: [{number: 80, name: any}, {number: 81, name: tcp, protocol: TCP}]
  resolution: STATIC
`
	const sidecar = `
---
apiVersion: networking.istio.io/v1
kind: Sidecar
metadata: {name: default, namespace: shop}
spec:
  egress:
  - {port: {number: 9090, name: http, protocol: HTTP}, hosts: ["./web.shop.svc.cluster.local"]}
  - {port: {number: 0, name: unix, protocol: HTTP}, bind: "unix:///run/a.sock", captureMode: NONE, hosts: ["./one.x", "./api.example.com"]}
`
	text := shopServices + onePort + sniffed + vsYAML("v", "[sniffed.x, foreign.org]", "  http:\n"+toCluster("a.x", 1))
	m := meshOf(t, text)
	m.inputs.Mesh.Config.ProxyHttpPort = 15002
	m.context = push.Build(nil, m.inputs)
	all := routesOf(t, New(), m.sidecar("elsewhere"))
	own := routesOf(t, New(), meshOf(t, text+sidecar).sidecar("shop"))
	const web = "web.shop.svc.cluster.local"
	tests := []struct {
		name      string
		got       *routev3.RouteConfiguration
		withPorts bool // told apart by the port behind a host
		want      []string
	}{
		{"a sniffed service on its own address", all["sniffed.x:80"], false, []string{"sniffed.x:80 [*] outbound|1||a.x"}},
		{"the mesh's HTTP proxy", all["http_proxy"], true, []string{
			"*.wild.com:8080 [*.wild.com:8080 *.wild.com] outbound|8080||*.wild.com",
			"api.example.com:80 [api.example.com:80 api.example.com 10.0.0.2:80 10.0.0.2 [2001:db8::2]:80 [2001:db8::2]] outbound|80||api.example.com",
			"foreign.org:80 [foreign.org:80 foreign.org] outbound|1||a.x",
			"one.x:7000 [one.x:7000 one.x] outbound|7000||one.x",
			"sniffed.x:80 [sniffed.x:80 sniffed.x 10.0.0.9:80 10.0.0.9] outbound|1||a.x",
			web + ":80 [" + web + ":80 " + web + " web.shop:80 web.shop web.shop.svc:80 web.shop.svc 10.0.0.1:80 10.0.0.1] outbound|80||" + web,
			web + ":9090 [" + web + ":9090 web.shop:9090 web.shop.svc:9090 10.0.0.1:9090] outbound|9090||" + web,
			"allow_any [*] PassthroughCluster",
		}},
		{"an egress listener with a port", own["9090"], false, []string{
			web + ":9090 [" + web + " " + web + ". web.shop web.shop. web.shop.svc web.shop.svc. 10.0.0.1] outbound|9090||" + web,
			"allow_any [*] PassthroughCluster",
		}},
		{"a unix socket", own["unix:///run/a.sock"], true, []string{
			"api.example.com:80 [api.example.com:80 api.example.com 10.0.0.2:80 10.0.0.2 [2001:db8::2]:80 [2001:db8::2]] outbound|80||api.example.com",
			"one.x:7000 [one.x:7000 one.x] outbound|7000||one.x",
			"allow_any [*] PassthroughCluster",
		}},
	}
	for _, tt := range tests {
		if d := cmp.Diff(tt.want, hostLines(tt.got)); d != "" {
			t.Errorf("%s (-want +got):\n%s", tt.name, d)
		}
		if tt.got.GetIgnorePortInHostMatching() == tt.withPorts {
			t.Errorf("%s: ignores the port of a host: %v", tt.name, !tt.withPorts)
		}
	}
}

// namedClusters lists the clusters that a route sends requests or copies of them to.
func namedClusters(r *routev3.Route) []string {
	var out []string
	if c := r.GetRoute().GetCluster(); c != "" {
		out = append(out, c)
	}
	for _, w := range r.GetRoute().GetWeightedClusters().GetClusters() {
		out = append(out, w.Name)
	}
	for _, m := range r.GetRoute().GetRequestMirrorPolicies() {
		out = append(out, m.Cluster)
	}
	return out
}
