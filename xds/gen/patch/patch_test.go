package patch_test

import (
	"fmt"
	"strings"
	"testing"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	"github.com/ashore-mesh/ashore/config"
	"github.com/ashore-mesh/ashore/internal/feed"
	"github.com/ashore-mesh/ashore/internal/memo"
	"github.com/ashore-mesh/ashore/push"
	"github.com/ashore-mesh/ashore/xds/gen/envoy"
	"github.com/ashore-mesh/ashore/xds/gen/patch"
	"github.com/ashore-mesh/ashore/xds/resource"
)

// filter is an EnvoyFilter of patches, which may have errors.
func filter(t testing.TB, patches string) (*config.Object, []feed.Problem) {
	t.Helper()
	text := "apiVersion: networking.istio.io/v1alpha3\nkind: EnvoyFilter\nmetadata: {name: x, namespace: shop}\n" +
		"spec:\n  configPatches:\n" + patches
	r := config.Parse("x.yaml", []byte(text))
	if len(r.Objects) == 0 {
		return nil, r.Problems
	}
	return r.Objects[0], r.Problems
}

// message reads a message of a resource type.
func message(t testing.TB, typeURL, json string) proto.Message {
	t.Helper()
	m := map[string]proto.Message{resource.ClusterType: &clusterv3.Cluster{}, resource.ListenerType: &listenerv3.Listener{},
		resource.RouteType: &routev3.RouteConfiguration{}, resource.ExtensionConfigType: &corev3.TypedExtensionConfig{}}[typeURL]
	if err := protojson.Unmarshal([]byte(json), m); err != nil {
		t.Fatal(err)
	}
	return m
}

// fixed is a layer as a plan.
type fixed struct{ layer *envoy.Layer }

func (f fixed) Layer() *envoy.Layer { return f.layer }

// bench patches one layer.
type bench struct {
	patcher *patch.Patcher
	layers  *memo.Func[envoy.Plan, envoy.Layer]
	context *push.Context
}

func newBench() *bench {
	layers := memo.New(envoy.Plan.Layer)
	return &bench{patcher: patch.New(layers), layers: layers}
}

// apply returns the shared layer of a proxy of a type and its own one, both made of the same base.
func (b *bench) apply(typeURL string, node push.NodeType, base *envoy.Layer, filters ...*config.Object) (s, o *envoy.Layer) {
	in := push.Inputs{Mesh: &push.Mesh{Config: config.DefaultMesh(), Domain: "cluster.local"}}
	for _, f := range filters {
		in.Objects = in.Objects.With(f.Key, f)
	}
	b.context = push.Build(b.context, in)
	sc := b.context.Scope(b.context.Classify(push.Node{Type: node, Namespace: "shop"}))
	shared, own := b.patcher.Plans(typeURL, sc, fixed{base}, fixed{base})
	return b.layers.Get(shared), b.layers.Get(own)
}

// layerOf is a layer of messages.
func layerOf(typeURL string, messages ...proto.Message) *envoy.Layer {
	var items []*resource.Resource
	for _, m := range messages {
		items = append(items, resource.New(typeURL, m.(interface{ GetName() string }).GetName(), nil,
			func() []byte { return resource.Encode(m) }))
	}
	return envoy.NewLayer(items...)
}

const (
	hcmName = "envoy.filters.network.http_connection_manager"
	hcmType = "type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager"
	lua     = `{name: lua, typed_config: {"@type": type.googleapis.com/envoy.extensions.filters.http.lua.v3.Lua}}`
	echo    = `{name: echo, typed_config: {"@type": type.googleapis.com/envoy.extensions.filters.network.echo.v3.Echo}}`
	proxied = `{name: pp, typed_config: {"@type": type.googleapis.com/envoy.extensions.filters.listener.proxy_protocol.v3.ProxyProtocol}}`

	aCluster = `{"name": "outbound|80|v1|web.shop", "connectTimeout": "5s", "altStatName": "before",
		"circuitBreakers": {"thresholds": [{"maxRequests": 7}]}, "transportSocket": {"name": "tls", "typedConfig": {
		"@type": "type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.UpstreamTlsContext", "sni": "a"}}}`
	inboundCluster = `{"name": "inbound|8080||", "metadata": {"filterMetadata": {"istio": {"services": [{"host": "web.shop"}]}}}}`
	someRoutes     = `{"name": "80", "virtualHosts": [
		{"name": "web:80", "domains": ["web", "web.shop"], "routes": [
			{"name": "one", "match": {"prefix": "/one"}, "redirect": {"pathRedirect": "/x"}},
			{"name": "two", "match": {"prefix": "/"}, "route": {"cluster": "c", "timeout": "3s"}}]},
		{"name": "api:80", "domains": ["api"], "routes": [{"name": "one", "match": {"prefix": "/"}, "directResponse": {"status": 200}}]}]}`
)

// aListener has a chain for requests and one for connections.
func aListener(name string) string {
	return `{"name": "` + name + `", "address": {"socketAddress": {"address": "0.0.0.0", "portValue": 15006}},
	"listenerFilters": [{"name": "tls", "typedConfig": {"@type": "type.googleapis.com/envoy.extensions.filters.listener.tls_inspector.v3.TlsInspector"}}],
	"filterChains": [{"name": "http", "filterChainMatch": {"destinationPort": 8080, "serverNames": ["a.x"]}, "filters": [
		{"name": "` + hcmName + `", "typedConfig": {"@type": "` + hcmType + `", "statPrefix": "s", "routeConfig":
			{"name": "inbound|8080||", "virtualHosts": [{"name": "all", "domains": ["*"], "routes": [
				{"name": "default", "match": {"prefix": "/"}, "route": {"cluster": "inbound|8080||"}}]}]},
		 "httpFilters": [
			{"name": "policy", "configDiscovery": {"configSource": {"ads": {}}, "typeUrls": ["type.googleapis.com/x"]}},
			{"name": "fault", "typedConfig": {"@type": "type.googleapis.com/envoy.extensions.filters.http.fault.v3.HTTPFault"}},
			{"name": "router", "typedConfig": {"@type": "type.googleapis.com/envoy.extensions.filters.http.router.v3.Router"}}]}}]}],
	"defaultFilterChain": {"name": "tcp", "filters": [{"name": "proxy", "typedConfig":
		{"@type": "type.googleapis.com/envoy.extensions.filters.network.tcp_proxy.v3.TcpProxy", "statPrefix": "p", "cluster": "c"}}]}}`
}

// names writes out what a resource has, by names: listener filters, and in () filter chains, filters
// and HTTP filters; virtual hosts and routes.
func names(t *testing.T, m proto.Message) string {
	t.Helper()
	var b strings.Builder
	switch m := m.(type) {
	case *listenerv3.Listener:
		b.WriteString(m.Name)
		for _, f := range m.ListenerFilters {
			b.WriteString(" " + f.Name)
		}
		chains := m.FilterChains
		if m.DefaultFilterChain != nil {
			chains = append(chains, m.DefaultFilterChain)
		}
		for _, c := range chains {
			fmt.Fprintf(&b, " (%s", c.Name)
			for _, f := range c.Filters {
				h := &hcmv3.HttpConnectionManager{}
				if f.GetTypedConfig().UnmarshalTo(h) != nil {
					b.WriteString(" " + f.Name)
					continue
				}
				for _, f := range h.HttpFilters {
					b.WriteString(" " + f.Name)
				}
				if h.GetRouteConfig() != nil {
					b.WriteString(" " + names(t, h.GetRouteConfig()))
				}
			}
			b.WriteString(")")
		}
	case *routev3.RouteConfiguration:
		for _, h := range m.VirtualHosts {
			fmt.Fprintf(&b, "[%s", h.Name)
			for _, r := range h.Routes {
				b.WriteString(" " + r.Name)
			}
			b.WriteString("]")
		}
	default:
		return m.(interface{ GetName() string }).GetName()
	}
	return b.String()
}

func TestNames(t *testing.T) {
	t.Parallel()
	const (
		http      = "match: {listener: {filterChain: {filter: {name: " + hcmName + "}}}}"
		fault     = "match: {listener: {filterChain: {filter: {name: " + hcmName + ", subFilter: {name: fault}}}}}"
		missing   = "match: {listener: {filterChain: {filter: {name: " + hcmName + ", subFilter: {name: none}}}}}"
		proxy     = "match: {listener: {filterChain: {filter: {name: proxy}}}}"
		unchanged = "in tls (http policy fault router [all default]) (tcp proxy)"
		route     = "{name: new, match: {prefix: /n}, direct_response: {status: 204}}"
		routes    = "[web:80 one two][api:80 one]"
		chain     = "{name: new, filters: [" + echo + "]}"
		one       = "match: {routeConfiguration: {vhost: {name: 'web:80', route: {name: one}}}}"
	)
	tests := []struct{ to, operation, match, value, want string }{
		{"HTTP_FILTER", "ADD", http, lua, "in tls (http policy fault router lua [all default]) (tcp proxy)"},
		{"HTTP_FILTER", "INSERT_FIRST", fault, lua, "in tls (http lua policy fault router [all default]) (tcp proxy)"},
		{"HTTP_FILTER", "INSERT_FIRST", missing, lua, "in tls (http lua policy fault router [all default]) (tcp proxy)"},
		{"HTTP_FILTER", "INSERT_BEFORE", fault, lua, "in tls (http policy lua fault router [all default]) (tcp proxy)"},
		{"HTTP_FILTER", "INSERT_BEFORE", "", lua, "in tls (http lua policy fault router [all default]) (tcp proxy)"},
		{"HTTP_FILTER", "INSERT_BEFORE", missing, lua, unchanged},
		{"HTTP_FILTER", "INSERT_AFTER", fault, lua, "in tls (http policy fault lua router [all default]) (tcp proxy)"},
		{"HTTP_FILTER", "INSERT_AFTER", http, lua, "in tls (http policy fault router lua [all default]) (tcp proxy)"},
		{"HTTP_FILTER", "REPLACE", fault, lua, "in tls (http policy lua router [all default]) (tcp proxy)"},
		{"HTTP_FILTER", "REMOVE", fault, "", "in tls (http policy router [all default]) (tcp proxy)"},
		{"HTTP_FILTER", "REMOVE", missing, "", unchanged},
		{"HTTP_FILTER", "MERGE", fault, "{name: renamed}", "in tls (http policy renamed router [all default]) (tcp proxy)"},
		{"HTTP_FILTER", "ADD", "match: {context: SIDECAR_OUTBOUND}", lua, unchanged},
		{"HTTP_FILTER", "ADD", "match: {context: GATEWAY}", lua, unchanged},
		{"HTTP_FILTER", "ADD", "match: {listener: {name: other}}", lua, unchanged},
		{"HTTP_FILTER", "ADD", "match: {listener: {portNumber: 1}}", lua, unchanged},
		{"HTTP_FILTER", "ADD", "match: {listener: {portNumber: 15006, filterChain: {name: http, sni: a.x, destinationPort: 8080}}}", lua,
			"in tls (http policy fault router lua [all default]) (tcp proxy)"},
		{"HTTP_FILTER", "ADD", "match: {listener: {filterChain: {sni: b.x}}}", lua, unchanged},
		{"HTTP_FILTER", "ADD", "match: {listener: {filterChain: {transportProtocol: tls}}}", lua, unchanged},
		{"HTTP_FILTER", "ADD", "match: {listener: {filterChain: {applicationProtocols: h2}}}", lua, unchanged},
		{"NETWORK_FILTER", "INSERT_BEFORE", proxy, echo, "in tls (http policy fault router [all default]) (tcp echo proxy)"},
		{"NETWORK_FILTER", "INSERT_AFTER", proxy, echo, "in tls (http policy fault router [all default]) (tcp proxy echo)"},
		{"NETWORK_FILTER", "INSERT_FIRST", "", echo, "in tls (http echo policy fault router [all default]) (tcp echo proxy)"},
		{"NETWORK_FILTER", "REPLACE", proxy, echo, "in tls (http policy fault router [all default]) (tcp echo)"},
		{"NETWORK_FILTER", "REMOVE", proxy, "", "in tls (http policy fault router [all default]) (tcp)"},
		{"NETWORK_FILTER", "MERGE", proxy, "{name: p}", "in tls (http policy fault router [all default]) (tcp p)"},
		{"LISTENER_FILTER", "ADD", "", proxied, "in tls pp (http policy fault router [all default]) (tcp proxy)"},
		{"LISTENER_FILTER", "INSERT_BEFORE", "match: {listener: {listenerFilter: tls}}", proxied,
			"in pp tls (http policy fault router [all default]) (tcp proxy)"},
		{"LISTENER_FILTER", "REMOVE", "match: {listener: {listenerFilter: tls}}", "",
			"in (http policy fault router [all default]) (tcp proxy)"},
		{"FILTER_CHAIN", "ADD", "", chain, "in tls (http policy fault router [all default]) (new echo) (tcp proxy)"},
		{"FILTER_CHAIN", "INSERT_BEFORE", "", chain, "in tls (http policy fault router [all default]) (new echo) (tcp proxy)"},
		{"FILTER_CHAIN", "REMOVE", "match: {listener: {filterChain: {name: tcp}}}", "", "in tls (http policy fault router [all default])"},
		{"FILTER_CHAIN", "MERGE", "match: {listener: {filterChain: {name: tcp}}}", "{name: t}",
			"in tls (http policy fault router [all default]) (t proxy)"},
		{"FILTER_CHAIN", "REPLACE", "match: {listener: {filterChain: {name: tcp}}}", chain,
			"in tls (http policy fault router [all default]) (new echo)"},
		{"LISTENER", "REMOVE", "match: {listener: {name: in}}", "", "none"},
		{"LISTENER", "REMOVE", "match: {listener: {portNumber: 15007}}", "", unchanged},
		{"VIRTUAL_HOST", "ADD", "match: {context: SIDECAR_INBOUND, routeConfiguration: {portNumber: 8080}}",
			"{name: new, domains: [n]}", "in tls (http policy fault router [all default][new]) (tcp proxy)"},
		{"HTTP_ROUTE", "INSERT_FIRST", "match: {routeConfiguration: {portNumber: 9}}", route, unchanged},

		{"VIRTUAL_HOST", "ADD", "", "{name: new, domains: [n]}", routes + "[new]"},
		{"VIRTUAL_HOST", "REMOVE", "match: {routeConfiguration: {vhost: {name: 'api:80'}}}", "", "[web:80 one two]"},
		{"VIRTUAL_HOST", "REPLACE", "match: {routeConfiguration: {vhost: {domainName: web}}}", "{name: new, domains: [n]}",
			"[new][api:80 one]"},
		{"VIRTUAL_HOST", "MERGE", "match: {routeConfiguration: {vhost: {name: 'api:80'}}}", "{name: m}", "[web:80 one two][m one]"},
		{"VIRTUAL_HOST", "ADD", "match: {routeConfiguration: {portNumber: 81}}", "{name: new, domains: [n]}", routes},
		{"HTTP_ROUTE", "INSERT_FIRST", one, route, "[web:80 new one two][api:80 one]"},
		{"HTTP_ROUTE", "INSERT_AFTER", one, route, "[web:80 one new two][api:80 one]"},
		{"HTTP_ROUTE", "INSERT_BEFORE", "match: {routeConfiguration: {vhost: {route: {action: ROUTE}}}}", route,
			"[web:80 one new two][api:80 one]"},
		{"HTTP_ROUTE", "INSERT_FIRST", "match: {routeConfiguration: {vhost: {route: {action: REDIRECT}}}}", route,
			"[web:80 new one two][api:80 one]"},
		{"HTTP_ROUTE", "ADD", "match: {routeConfiguration: {name: '80', vhost: {name: 'web:80'}}}", route,
			"[web:80 one two new][api:80 one]"},
		{"HTTP_ROUTE", "REMOVE", "match: {routeConfiguration: {vhost: {route: {action: DIRECT_RESPONSE}}}}", "", "[web:80 one two][api:80]"},
		{"HTTP_ROUTE", "MERGE", one, "{name: merged}", "[web:80 merged two][api:80 one]"},

		{"CLUSTER", "REMOVE", "match: {cluster: {service: web.shop, subset: v1, portNumber: 80}}", "", "none"},
		{"CLUSTER", "REMOVE", "match: {cluster: {service: web.shop, subset: v2}}", "", "outbound|80|v1|web.shop"},
		{"CLUSTER", "REMOVE", "match: {cluster: {portNumber: 81}}", "", "outbound|80|v1|web.shop"},
		{"CLUSTER", "ADD", "", "{name: new}", "new outbound|80|v1|web.shop"},
	}
	for _, tt := range tests {
		t.Run(tt.to+" "+tt.operation+" "+tt.match, func(t *testing.T) {
			t.Parallel()
			typeURL, base, inbound := resource.ListenerType, aListener("in"), true
			switch {
			case tt.to == "CLUSTER":
				typeURL, base, inbound = resource.ClusterType, aCluster, false
			case strings.HasPrefix(tt.want, "["):
				typeURL, base, inbound = resource.RouteType, someRoutes, false
			}
			patches := "  - applyTo: " + tt.to + "\n    " + tt.match + "\n    patch:\n      operation: " + tt.operation + "\n"
			if tt.value != "" {
				patches += "      value: " + tt.value + "\n"
			}
			f, problems := filter(t, patches)
			if f == nil {
				t.Fatalf("refused: %v", problems)
			}
			shared, own := newBench().apply(typeURL, push.Sidecar, layerOf(typeURL, message(t, typeURL, base)), f)
			l := shared
			if inbound {
				l = own
			}
			var got []string
			for _, r := range l.Items() {
				m := message(t, typeURL, "{}")
				if err := proto.Unmarshal(r.Body(), m); err != nil {
					t.Fatal(err)
				}
				got = append(got, names(t, m))
			}
			if len(got) == 0 {
				got = []string{"none"}
			}
			if text := strings.Join(got, " "); text != tt.want || len(l.Problems) > 0 {
				t.Errorf("got  %s\nwant %s\nproblems %v", text, tt.want, l.Problems)
			}
		})
	}
}

// Merging follows protobuf, but for plain values and extensions.
func TestMerge(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name, typeURL, base, to, operation, match, value string
		want                                             []string
	}{
		{"a cluster", resource.ClusterType, aCluster, "CLUSTER", "MERGE", "",
			`{alt_stat_name: after, connect_timeout: 0.2s, circuit_breakers: {thresholds: [{max_requests: 0}]}}`,
			[]string{`"altStatName":"after"`, `"connectTimeout":"0.200s"`, `"thresholds":[{"maxRequests":7},{"maxRequests":0}]`}},
		{"lists replaced", resource.ClusterType, aCluster, "CLUSTER", "MERGE_AND_REPLACE_LIST", "",
			`{circuit_breakers: {thresholds: [{max_requests: 9}]}}`, []string{`"thresholds":[{"maxRequests":9}]`, `"sni":"a"`}},
		{"a transport socket", resource.ClusterType, aCluster, "CLUSTER", "MERGE", "",
			`{transport_socket: {name: tls, typed_config: {"@type": type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.UpstreamTlsContext, allow_renegotiation: true}}}`,
			[]string{`"sni":"a"`, `"allowRenegotiation":true`}},
		{"another transport socket", resource.ClusterType, aCluster, "CLUSTER", "MERGE", "",
			`{transport_socket: {name: raw, typed_config: {"@type": type.googleapis.com/envoy.extensions.transport_sockets.raw_buffer.v3.RawBuffer}}}`,
			[]string{`"transportSocket":{"name":"raw","typedConfig":{"@type":"type.googleapis.com/envoy.extensions.transport_sockets.raw_buffer.v3.RawBuffer"}}`}},
		{"an inbound cluster by its service", resource.ClusterType, inboundCluster, "CLUSTER", "MERGE",
			"match: {cluster: {service: web.shop}}", `{alt_stat_name: after}`, []string{`"altStatName":"after"`}},
		{"a network filter", resource.ListenerType, aListener("in"), "NETWORK_FILTER", "MERGE",
			"match: {listener: {filterChain: {filter: {name: " + hcmName + "}}}}",
			`{typed_config: {"@type": ` + hcmType + `, stat_prefix: t, server_name: x}}`,
			[]string{`"statPrefix":"t"`, `"serverName":"x"`, `"name":"router"`}},
		{"an HTTP filter that the proxy fetches", resource.ListenerType, aListener("in"), "HTTP_FILTER", "MERGE", "",
			`{typed_config: {"@type": type.googleapis.com/envoy.extensions.filters.http.router.v3.Router, start_child_span: true}}`,
			[]string{`"startChildSpan":true`, `"name":"policy","configDiscovery":`}},
		{"a filter chain", resource.ListenerType, aListener("in"), "FILTER_CHAIN", "MERGE",
			"match: {listener: {filterChain: {name: tcp}}}", `{transport_socket_connect_timeout: 4s}`,
			[]string{`"transportSocketConnectTimeout":"4s"`}},
		{"a listener", resource.ListenerType, aListener("in"), "LISTENER", "MERGE", "",
			`{per_connection_buffer_limit_bytes: 0, access_log: []}`, []string{`"perConnectionBufferLimitBytes":0`}},
		{"a route configuration", resource.RouteType, someRoutes, "ROUTE_CONFIGURATION", "MERGE", "",
			`{response_headers_to_remove: [a]}`, []string{`"responseHeadersToRemove":["a"]`}},
		{"a route", resource.RouteType, someRoutes, "HTTP_ROUTE", "MERGE",
			"match: {routeConfiguration: {vhost: {route: {name: two}}}}", `{route: {timeout: 0s, prefix_rewrite: /r}}`,
			[]string{`"route":{"cluster":"c","prefixRewrite":"/r","timeout":"0s"}`}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			f, problems := filter(t, "  - applyTo: "+tt.to+"\n    "+tt.match+"\n    patch:\n      operation: "+tt.operation+
				"\n      value: "+tt.value+"\n")
			if f == nil {
				t.Fatalf("refused: %v", problems)
			}
			_, own := newBench().apply(tt.typeURL, push.Sidecar, layerOf(tt.typeURL, message(t, tt.typeURL, tt.base)), f)
			if tt.typeURL != resource.ListenerType && tt.base != inboundCluster {
				own, _ = newBench().apply(tt.typeURL, push.Sidecar, layerOf(tt.typeURL, message(t, tt.typeURL, tt.base)), f)
			}
			m := message(t, tt.typeURL, "{}")
			if err := proto.Unmarshal(own.Items()[0].Body(), m); err != nil {
				t.Fatal(err)
			}
			got := strings.ReplaceAll(protojson.Format(m), "\n", "")
			got = strings.ReplaceAll(strings.ReplaceAll(got, ": ", ":"), ",  ", ",")
			got = strings.ReplaceAll(got, " ", "")
			for _, w := range tt.want {
				if !strings.Contains(got, strings.ReplaceAll(w, " ", "")) {
					t.Errorf("no %s in\n%s", w, got)
				}
			}
			if len(own.Problems) > 0 {
				t.Errorf("problems: %v", own.Problems)
			}
		})
	}
}

// A patch that Envoy would refuse is left out, alone, and reported with its field.
func TestLeftOut(t *testing.T) {
	t.Parallel()
	f, problems := filter(t, `  - applyTo: CLUSTER
    patch: {operation: MERGE, value: {alt_stat_name: good}}
  - applyTo: CLUSTER
    patch: {operation: MERGE, value: {connect_timeout: 0s}}
  - applyTo: CLUSTER
    patch: {operation: MERGE, value: {name: other}}
  - applyTo: CLUSTER
    patch: {operation: ADD, value: {name: added, max_requests_per_connection: 3, connect_timeout: -1s}}
  - applyTo: CLUSTER
    patch: {operation: MERGE, value: {respect_dns_ttl: true}}
`)
	if f == nil {
		t.Fatal(problems)
	}
	other := strings.ReplaceAll(aCluster, "web.shop", "api.shop")
	base := layerOf(resource.ClusterType, message(t, resource.ClusterType, aCluster), message(t, resource.ClusterType, other))
	l, _ := newBench().apply(resource.ClusterType, push.Router, base, f)
	var got []string
	for _, p := range l.Problems {
		got = append(got, p.Object+" "+p.Field+" "+p.Text)
	}
	want := []string{
		"EnvoyFilter shop/x spec.configPatches[1].patch the patch of Cluster outbound|80|v1|api.shop is left out: Envoy would refuse it: " +
			"invalid Cluster.ConnectTimeout: value must be greater than 0s",
		`EnvoyFilter shop/x spec.configPatches[2].patch the patch of Cluster outbound|80|v1|api.shop is left out: Envoy would refuse it: its name is "other"`,
		"EnvoyFilter shop/x spec.configPatches[3].patch the patch of Cluster added is left out: Envoy would refuse it: " +
			"invalid Cluster.ConnectTimeout: value must be greater than 0s",
	}
	if strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	for _, r := range l.Items() {
		m := &clusterv3.Cluster{}
		if err := proto.Unmarshal(r.Body(), m); err != nil {
			t.Fatal(err)
		}
		var patches []string
		for _, p := range r.Patches {
			patches = append(patches, p.String())
		}
		if m.AltStatName != "good" || !m.RespectDnsTtl || m.ConnectTimeout.AsDuration().String() != "5s" || strings.Join(patches, ", ") !=
			"EnvoyFilter shop/x spec.configPatches[0], EnvoyFilter shop/x spec.configPatches[4]" {
			t.Errorf("%v of %s", m, patches)
		}
	}
}

// What no patch concerns stays as it is, and what the same patches make is shared.
func TestShared(t *testing.T) {
	t.Parallel()
	other := strings.ReplaceAll(aCluster, "web.shop", "api.shop")
	base := layerOf(resource.ClusterType, message(t, resource.ClusterType, aCluster), message(t, resource.ClusterType, other))
	const merges = `  - applyTo: CLUSTER
    match: {context: SIDECAR_OUTBOUND, cluster: {service: %s}}
    patch: {operation: MERGE, value: {alt_stat_name: %s}}
`
	web, _ := filter(t, fmt.Sprintf(merges, "web.shop", "a"))
	api, _ := filter(t, fmt.Sprintf(merges, "api.shop", "b"))
	inbound, _ := filter(t, "  - applyTo: HTTP_FILTER\n    match: {context: SIDECAR_INBOUND}\n    patch: {operation: ADD, value: "+lua+"}\n")
	web.Name, api.Name = "web", "api"
	b := newBench()
	first, own := b.apply(resource.ClusterType, push.Sidecar, base, web)
	if again, _ := b.apply(resource.ClusterType, push.Sidecar, base, web, inbound); again != first {
		t.Error("a patch of listeners changed clusters")
	}
	if own != base {
		t.Error("a patch of outbound clusters changed inbound ones")
	}
	api80, web80 := "outbound|80|v1|api.shop", "outbound|80|v1|web.shop"
	if first.Get(api80) != base.Get(api80) || first.Get(web80) == base.Get(web80) {
		t.Error("a patch of one cluster is not that of one cluster alone")
	}
	both, _ := b.apply(resource.ClusterType, push.Sidecar, base, web, api)
	if both.Get(web80) != first.Get(web80) || both.Get(api80) == base.Get(api80) {
		t.Error("a patch of another cluster changed this one")
	}
	if r := first.Get(web80); len(r.Patches) != 1 {
		t.Errorf("%v touched it, want one", r.Patches)
	}
}

// Of a listener that takes the connections for all ports, portNumber chooses filter chains.
func TestVirtualListener(t *testing.T) {
	t.Parallel()
	for port, want := range map[int]bool{8080: true, 15006: false} {
		f, problems := filter(t, fmt.Sprintf("  - applyTo: HTTP_FILTER\n    match: {listener: {portNumber: %d}}\n    patch: {operation: ADD, value: %s}\n", port, lua))
		if f == nil {
			t.Fatal(problems)
		}
		base := layerOf(resource.ListenerType, message(t, resource.ListenerType, aListener("virtualInbound")))
		_, own := newBench().apply(resource.ListenerType, push.Sidecar, base, f)
		if got := own.Items()[0] != base.Items()[0]; got != want {
			t.Errorf("port %d: changed %v, want %v", port, got, want)
		}
	}
}

// Route configurations of gateways are matched by the parts of their names.
func TestGatewayRoutes(t *testing.T) {
	t.Parallel()
	for match, want := range map[string]string{
		"{portNumber: 80}":                "http.80",
		"{portNumber: 443}":               "https.443.web.gw.shop",
		"{portName: web}":                 "https.443.web.gw.shop",
		"{gateway: shop/gw}":              "https.443.web.gw.shop",
		"{gateway: gw/shop}":              "",
		"{name: http.80, portNumber: 80}": "http.80",
	} {
		f, problems := filter(t, "  - applyTo: ROUTE_CONFIGURATION\n    match: {context: GATEWAY, routeConfiguration: "+match+
			"}\n    patch: {operation: MERGE, value: {most_specific_header_mutations_wins: true}}\n")
		if f == nil {
			t.Fatal(problems)
		}
		base := layerOf(resource.RouteType, &routev3.RouteConfiguration{Name: "http.80"},
			&routev3.RouteConfiguration{Name: "https.443.web.gw.shop"})
		l, _ := newBench().apply(resource.RouteType, push.Router, base, f)
		got := ""
		for i, r := range l.Items() {
			if r != base.Items()[i] {
				got += r.Name
			}
		}
		if got != want {
			t.Errorf("%s: changed %q, want %q", match, got, want)
		}
	}
}

// FuzzPatch applies patches of all kinds: none panics, and what is left keeps Envoy's rules.
func FuzzPatch(f *testing.F) {
	for _, seed := range []string{
		"  - {applyTo: HTTP_FILTER, patch: {operation: ADD, value: " + lua + "}}\n",
		"  - {applyTo: NETWORK_FILTER, patch: {operation: INSERT_BEFORE, value: " + echo + "}}\n",
		"  - {applyTo: LISTENER, patch: {operation: MERGE, value: {name: x, filter_chains: [{name: a}], default_filter_chain: {name: y}}}}\n",
		"  - {applyTo: FILTER_CHAIN, patch: {operation: REPLACE, value: {name: new, filters: [" + echo + "]}}}\n",
		"  - {applyTo: HTTP_ROUTE, match: {routeConfiguration: {vhost: {name: all, route: {action: ROUTE}}}}, patch: {operation: INSERT_FIRST, value: {match: {prefix: /}}}}\n",
		"  - {applyTo: VIRTUAL_HOST, patch: {operation: MERGE_AND_REPLACE_LIST, value: {domains: [a], routes: []}}}\n",
		"  - {applyTo: CLUSTER, patch: {operation: MERGE, value: {transport_socket: {name: tls}, metadata: {filter_metadata: {a: {b: 1}}}}}}\n",
		"  - {applyTo: EXTENSION_CONFIG, patch: {operation: ADD, value: {name: x}}}\n  - {applyTo: CLUSTER, patch: {operation: REMOVE}}\n",
	} {
		f.Add(seed)
	}
	bases := map[string]string{resource.ClusterType: aCluster, resource.ListenerType: aListener("virtualInbound"),
		resource.RouteType: someRoutes, resource.ExtensionConfigType: `{"name": "x"}`}
	f.Fuzz(func(t *testing.T, patches string) {
		o, _ := filter(t, patches)
		if o == nil || o.Kind != config.EnvoyFilter {
			return
		}
		for typeURL, base := range bases {
			l := layerOf(typeURL, message(t, typeURL, base))
			before := l.Items()[0].Version()
			for _, node := range []push.NodeType{push.Sidecar, push.Router} {
				shared, own := newBench().apply(typeURL, node, l, o)
				for _, r := range append(shared.Items(), own.Items()...) {
					m := message(t, typeURL, "{}")
					if err := proto.Unmarshal(r.Body(), m); err != nil {
						t.Fatal(err)
					}
					if v := m.(envoy.Validated); len(r.Patches) > 0 && v.Validate() != nil {
						t.Fatal(v.Validate())
					}
				}
			}
			if l.Items()[0].Version() != before {
				t.Fatal("the base changed")
			}
		}
	})
}

// A patch that changes nothing in any layer is reported, and one that does is not.
func TestWithoutEffect(t *testing.T) {
	t.Parallel()
	tcp := "{name: tcp, typed_config: {\"@type\": type.googleapis.com/envoy.extensions.filters.network.tcp_proxy.v3.TcpProxy, stat_prefix: x, cluster: x}}"
	in := "match: {context: SIDECAR_INBOUND, listener: {"
	named := "filterChain: {filter: {name: " + hcmName + "}}}}"
	tests := []struct{ name, typeURL, patch, value string }{
		{"an unknown filter", resource.ListenerType, "applyTo: HTTP_FILTER, " + in + "filterChain: {filter: {name: " + hcmName +
			", subFilter: {name: routre}}}}}, patch: {operation: INSERT_BEFORE", lua},
		{"another port", resource.ListenerType, "applyTo: HTTP_FILTER, " + in + "portNumber: 28888}}, patch: {operation: ADD", lua},
		{"a name that is used", resource.ClusterType, "applyTo: CLUSTER, match: {context: SIDECAR_OUTBOUND}, patch: {operation: ADD",
			"{name: outbound|80|v1|web.shop}"},
		{"another type", resource.ListenerType, "applyTo: NETWORK_FILTER, " + in + named + ", patch: {operation: MERGE",
			strings.ReplaceAll(tcp, "name: tcp", "name: "+hcmName)},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			works := "  - {applyTo: HTTP_FILTER, " + in + "}}, patch: {operation: INSERT_FIRST, value: " + lua + "}}\n"
			if tt.typeURL == resource.ClusterType {
				works = "  - {applyTo: CLUSTER, match: {context: SIDECAR_OUTBOUND}, patch: {operation: MERGE, value: {alt_stat_name: x}}}\n"
			}
			f, problems := filter(t, works+"  - {"+tt.patch+", value: "+tt.value+"}}\n")
			if f == nil {
				t.Fatal(problems)
			}
			base := layerOf(resource.ListenerType, message(t, resource.ListenerType, aListener("in")))
			if tt.typeURL == resource.ClusterType {
				base = layerOf(resource.ClusterType, message(t, resource.ClusterType, aCluster))
			}
			shared, own := newBench().apply(tt.typeURL, push.Sidecar, base, f)
			got := resource.Problems(resource.Set{Shared: &shared.Layer}, resource.Set{Own: &own.Layer})
			if len(got) != 1 || got[0].Field != "spec.configPatches[1]" || got[0].IsError() || got[0].File != "x.yaml" {
				t.Errorf("got %v, want one problem of the second patch", got)
			}
			for _, r := range append(shared.Items(), own.Items()...) {
				for _, p := range r.Patches {
					if p.Field != "spec.configPatches[0]" {
						t.Errorf("%s has the patch %v", r.Name, p)
					}
				}
			}
		})
	}
}
