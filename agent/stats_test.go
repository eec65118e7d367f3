package agent

import (
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"regexp"
	"slices"
	"strings"
	"testing"

	bootstrapv3 "github.com/envoyproxy/go-control-plane/envoy/config/bootstrap/v3"
	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	routerv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/router/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/resource_monitors/downstream_connections/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/upstreams/http/v3"
	matcherv3 "github.com/envoyproxy/go-control-plane/envoy/type/matcher/v3"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/wrapperspb"
	meshconfig "istio.io/api/mesh/v1alpha1"
)

// parsedBootstrap is a bootstrap whose messages are valid.
func parsedBootstrap(t *testing.T, s Settings) *bootstrapv3.Bootstrap {
	t.Helper()
	raw, err := Bootstrap(&s)
	if err != nil {
		t.Fatal(err)
	}
	b := &bootstrapv3.Bootstrap{}
	if err := errors.Join(protojson.Unmarshal(raw, b), b.ValidateAll()); err != nil {
		t.Fatal(err)
	}
	return b
}

// Envoy evaluates an expression without a literal prefix for each metric of each cluster. With a
// thousand services its start then took seconds; so did a second one for clusters.
func TestExpressionsOfLabels(t *testing.T) {
	t.Parallel()
	b := parsedBootstrap(t, good())
	prefix, ofClusters := regexp.MustCompile(`^\^[a-z_]+\\\.`), 0
	for _, tag := range b.StatsConfig.StatsTags {
		regex := tag.GetRegex()
		if regex == "" {
			continue // Envoy's own
		}
		if !prefix.MatchString(regex) {
			t.Errorf("label %s: %s is tried on every metric: begin it with ^ and one word", tag.TagName, regex)
		}
		if strings.HasPrefix(regex, `^cluster\.`) {
			ofClusters++
		}
	}
	if ofClusters != 1 {
		t.Errorf("%d expressions are tried on the metrics of every cluster, want 1", ofClusters)
	}
	if !b.DeferredStatOptions.GetEnableDeferredCreationStats() {
		t.Error("metrics of traffic are made for clusters without traffic")
	}
}

// Envoy keeps the metrics of docs/agent.md, and those that annotations add.
func TestKeptStats(t *testing.T) {
	t.Parallel()
	s := good()
	s.Envoy.adopt(&meshconfig.ProxyConfig{ProxyStatsMatcher: &meshconfig.ProxyConfig_ProxyStatsMatcher{
		InclusionPrefixes: []string{"wider."}, InclusionSuffixes: []string{".wider"},
		InclusionRegexps: []string{`a\..*\.wide`}}})
	list := parsedBootstrap(t, s).StatsConfig.StatsMatcher.GetInclusionList().GetPatterns()
	kept := func(name string) bool {
		return slices.ContainsFunc(list, func(m *matcherv3.StringMatcher) bool {
			switch {
			case m.GetPrefix() != "":
				return strings.HasPrefix(name, m.GetPrefix())
			case m.GetSuffix() != "":
				return strings.HasSuffix(name, m.GetSuffix())
			}
			return regexp.MustCompile("^(?:" + m.GetSafeRegex().GetRegex() + ")$").MatchString(name) // Envoy's matches are whole
		})
	}
	const destination, listener = "cluster.outbound|80|v1|update_version.ssl.svc.cluster.local;.", "listener.0.0.0.0_8080."
	for name, want := range map[string]bool{
		"istio.requests_total": true, "cluster_manager.cds.update_success": true, "server.live": true,
		"listener_manager.lds.update_rejected": true, "wider.x": true, "x.wider": true, "a.b.wide": true, "b.a.wide": false,
		destination + "upstream_rq_total": true, destination + "upstream_rq_5xx": true, destination + "upstream_rq_503": false,
		destination + "internal.upstream_rq_5xx": false, destination + "upstream_rq_time": false,
		destination + "membership_healthy": true, destination + "membership_excluded": false,
		destination + "grpc.request_message_count": true, destination + "grpc.success": false,
		destination + "circuit_breakers.default.cx_open": true, destination + "circuit_breakers.high.cx_open": false,
		destination + "outlier_detection.ejections_active": true, destination + "ssl.fail_verify_san": true,
		destination + "update_success": false, destination + "lb_subsets_active": false,
		"cluster.inbound|8080||;.upstream_cx_total": true, "cluster.PassthroughCluster.upstream_cx_total": true,
		"cluster.xds-grpc.upstream_cx_connect_fail": true, "cluster.prometheus_stats.upstream_cx_total": false,
		listener + "downstream_cx_active": true, listener + "worker_0.downstream_cx_active": false,
		listener + "ssl.handshake": true, listener + "ssl.ciphers.TLS_AES_128_GCM_SHA256": false,
		"listener.[__1]_80.downstream_cx_total": true, "listener.admin.downstream_cx_total": false,
		"http.outbound_0.0.0.0_80;.downstream_rq_5xx": true, "http.inbound_0.0.0.0_80;.rbac.denied": true,
		"http.outbound_0.0.0.0_80;.rds.80.update_success": false, "tcp.rbac.denied": true,
	} {
		if kept(name) != want {
			t.Errorf("%s: kept %t, want %t", name, !want, want)
		}
	}
}

// httpForward is an HTTP listener at "at" that sends what has the header "to" to the cluster of
// that name.
func httpForward(t *testing.T, at string, clusters []*clusterv3.Cluster) *listenerv3.Listener {
	t.Helper()
	router, err := anypb.New(&routerv3.Router{})
	if err != nil {
		t.Fatal(err)
	}
	manager, err := anypb.New(&hcmv3.HttpConnectionManager{
		StatPrefix: "outbound_0.0.0.0_80;",
		HttpFilters: []*hcmv3.HttpFilter{{Name: "envoy.filters.http.router",
			ConfigType: &hcmv3.HttpFilter_TypedConfig{TypedConfig: router}}},
		RouteSpecifier: &hcmv3.HttpConnectionManager_RouteConfig{RouteConfig: &routev3.RouteConfiguration{VirtualHosts: []*routev3.VirtualHost{{
			Name: "all", Domains: []string{"*"}, Routes: []*routev3.Route{{
				Match:  &routev3.RouteMatch{PathSpecifier: &routev3.RouteMatch_Prefix{Prefix: "/"}},
				Action: &routev3.Route_Route{Route: &routev3.RouteAction{ClusterSpecifier: &routev3.RouteAction_ClusterHeader{ClusterHeader: "to"}}},
			}}}}}},
	})
	if err != nil {
		t.Fatal(err)
	}
	host, port, err := hostPort(at)
	if err != nil {
		t.Fatal(err)
	}
	return &listenerv3.Listener{Name: "l", Address: tcpAddress(host, port), EnableReusePort: wrapperspb.Bool(false),
		FilterChains: []*listenerv3.FilterChain{{Filters: []*listenerv3.Filter{{Name: "envoy.filters.network.http_connection_manager",
			ConfigType: &listenerv3.Filter_TypedConfig{TypedConfig: manager}}}}}}
}

// The names and labels in docs/agent.md are those of a real Envoy, also for hosts that look like
// names of metrics.
func TestMetricNames(t *testing.T) {
	t.Parallel()
	backend := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/missing" {
			http.NotFound(w, r)
		}
	}))
	t.Cleanup(backend.Close)
	const (
		address             = "127.0.41.22"
		used, idle, inbound = "outbound|80|v1|www.ssl.db.internal", "outbound|80||idle.svc.cluster.local", "inbound|8080||"
	)
	host, port, err := hostPort(backend.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	var clusters []*clusterv3.Cluster
	for _, name := range []string{used, idle, inbound} {
		clusters = append(clusters, localCluster(name, tcpAddress(host, port)))
	}
	plane := startControlPlane(t, clusters, []*listenerv3.Listener{httpForward(t, address+":9000", clusters)})
	r := start(t, example(t, address, func(s *Settings) { s.XDS.Addresses = []string{plane.address} }))
	r.ready(statusPort)
	for to, path := range map[string]string{used: "/missing", inbound: "/"} {
		eventually(t, "a request to "+to, func() error { return request("http://"+address+":9000"+path, to) })
	}
	for _, port := range []int{metricsPort, statusPort} {
		code, body, err := r.get(http.MethodGet, port, "/stats/prometheus")
		if err != nil || code != http.StatusOK {
			t.Fatalf("metrics: %d, %v", code, err)
		}
		checkMetrics(t, body, map[string]bool{
			`envoy_cluster_upstream_rq_xx{envoy_response_code_class="4",cluster_name="` + used + `"} 1`:     true,
			`envoy_cluster_upstream_rq_xx{envoy_response_code_class="2",cluster_name="` + inbound + `"} 1`:  true,
			`envoy_cluster_upstream_cx_total{cluster_name="` + used + `"} 1`:                                true,
			`envoy_cluster_membership_healthy{cluster_name="` + idle + `"} 1`:                               true,
			`envoy_cluster_circuit_breakers_default_rq_open{cluster_name="` + idle + `"} 0`:                 true,
			`envoy_http_downstream_rq_xx{envoy_response_code_class="4",http_conn_manager_prefix="outbound_`: true,
			`envoy_listener_downstream_cx_total{listener_address="127.0.41.22_9000"}`:                       true,
			`envoy_cluster_upstream_cx_total{cluster_name="xds-grpc"} 1`:                                    true,
			`envoy_cluster_membership_excluded{cluster_name="` + idle + `"} 0`:                              false,
			// made at its first use
			`envoy_cluster_upstream_rq_total{cluster_name="` + idle + `"}`: false,
		})
	}
}

// request sends one to a cluster; any answer will do.
func request(url, to string) error {
	r, err := http.NewRequest(http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	r.Header.Set("to", to)
	r.Close = true // nothing is open when the agent ends
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		return err
	}
	if resp.StatusCode == http.StatusServiceUnavailable {
		err = fmt.Errorf("%s: %s", url, resp.Status)
	}
	return errors.Join(err, resp.Body.Close())
}

// checkMetrics looks for beginnings of lines, and that no cluster's name is part of a metric's.
func checkMetrics(t *testing.T, body string, want map[string]bool) {
	t.Helper()
	for line, there := range want {
		if strings.Contains("\n"+body, "\n"+line) != there {
			t.Errorf("a line with %s: %t, want %t", line, !there, there)
		}
	}
	for line := range strings.Lines(body) {
		if name, _, _ := strings.Cut(line, "{"); strings.HasPrefix(name, "envoy_cluster_outbound_") ||
			strings.HasPrefix(name, "envoy_cluster_inbound_") {
			t.Errorf("a cluster's name in the name of a metric: %s", line)
		}
	}
}
