package agent

import (
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"regexp"
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
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/wrapperspb"
)

// parsedBootstrap is a bootstrap whose messages are valid.
func parsedBootstrap(t *testing.T) *bootstrapv3.Bootstrap {
	t.Helper()
	s := good()
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
	b := parsedBootstrap(t)
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

// Metrics are omitted only for destinations, and never those of their traffic or state.
func TestUnneededStats(t *testing.T) {
	t.Parallel()
	b := parsedBootstrap(t)
	list := b.StatsConfig.StatsMatcher.GetExclusionList().GetPatterns()
	if len(list) != 1 {
		t.Fatalf("%d patterns, want 1", len(list))
	}
	out := regexp.MustCompile("^(?:" + list[0].GetSafeRegex().GetRegex() + ")$") // Envoy's matches are whole
	const destination = "cluster.outbound|80|v1|update_version.ssl.svc.cluster.local;."
	for _, name := range []string{
		"update_success", "update_rejected", "update_duration", "version", "version_text", "init_fetch_timeout",
		"assignment_stale",
		"warming_state", "lb_subsets_active", "lb_zone_routing_sampled", "circuit_breakers.high.cx_open",
		"circuit_breakers.default.remaining_cx",
		"ssl.certificate.default.expiration_unix_time_seconds", "ssl.ocsp_staple_failed", "tlsMode-istio.total_match_count",
		"client_ssl_socket_factory.ssl_context_update_by_sds", "membership_excluded",
		"outlier_detection.ejections_detected_consecutive_5xx",
		"outlier_detection.ejections_total", "outlier_detection.ejections_enforced_success_rate",
	} {
		if !out.MatchString(destination + name) {
			t.Errorf("%s is made for each destination", name)
		}
		for _, other := range []string{"cluster.inbound|8080||;.", "cluster.xds-grpc.", "cluster_manager.cds.",
			"listener_manager.lds."} {
			if out.MatchString(other + name) {
				t.Errorf("%s is left out", other+name)
			}
		}
	}
	for _, name := range []string{
		"upstream_rq_total", "upstream_rq_200", "upstream_rq_5xx", "upstream_rq_time", "upstream_cx_active",
		"upstream_cx_connect_fail",
		"upstream_rq_pending_overflow", "internal.upstream_rq_200", "membership_healthy", "membership_total",
		"lb_healthy_panic",
		"circuit_breakers.default.cx_open", "circuit_breakers.default.rq_open", "circuit_breakers.default.rq_pending_open",
		"ssl.connection_error", "ssl.fail_verify_san", "ssl.fail_verify_error", "ssl.versions.TLSv1.3",
		"ssl.ciphers.TLS_AES_128_GCM_SHA256",
		"outlier_detection.ejections_active", "outlier_detection.ejections_enforced_total",
		"outlier_detection.ejections_enforced_consecutive_5xx",
	} {
		if out.MatchString(destination + name) {
			t.Errorf("%s is left out", name)
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
// names of metrics. They are the same with a control plane that adds no semicolon to names of
// clusters. What it does not promise is there when all is asked for.
func TestMetricNames(t *testing.T) {
	t.Parallel()
	backend := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/missing" {
			http.NotFound(w, r)
		}
	}))
	t.Cleanup(backend.Close)
	const (
		used, plain, idle = "outbound|80|v1|db.internal", "outbound|80||www.ssl.b.example",
			"outbound|80||idle.svc.cluster.local"
		inbound = "inbound|8080||"
	)
	for _, c := range []struct {
		name, address string
	}{{"usual", "127.0.41.22"}} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			host, port, err := hostPort(backend.Listener.Addr().String())
			if err != nil {
				t.Fatal(err)
			}
			var clusters []*clusterv3.Cluster
			for _, name := range []string{used, plain, idle, inbound} {
				cluster := localCluster(name, tcpAddress(host, port))
				if name != plain {
					cluster.AltStatName = name + ";"
				}
				clusters = append(clusters, cluster)
			}
			plane := startControlPlane(t, clusters, []*listenerv3.Listener{httpForward(t, c.address+":9000", clusters)})
			r := start(t, example(t, c.address, func(s *Settings) {
				s.XDS.Addresses = []string{plane.address}
			}))
			r.ready(statusPort)
			for to, path := range map[string]string{used: "/missing", plain: "/", inbound: "/"} {
				eventually(t, "a request to "+to, func() error { return request("http://"+c.address+":9000"+path, to) })
			}
			for _, port := range []int{metricsPort, statusPort} {
				code, body, err := r.get(http.MethodGet, port, "/stats/prometheus")
				if err != nil || code != http.StatusOK {
					t.Fatalf("metrics: %d, %v", code, err)
				}
				checkMetrics(t, body, map[string]bool{
					`envoy_cluster_upstream_rq{envoy_response_code="404",cluster_name="` + used + `"} 1`:            true,
					`envoy_cluster_upstream_rq_xx{envoy_response_code_class="4",cluster_name="` + used + `"} 1`:     true,
					`envoy_cluster_upstream_rq{envoy_response_code="200",cluster_name="` + plain + `"} 1`:           true,
					`envoy_cluster_upstream_rq{envoy_response_code="200",cluster_name="` + inbound + `"} 1`:         true,
					`envoy_cluster_upstream_cx_total{cluster_name="` + used + `"} 1`:                                true,
					`envoy_cluster_membership_healthy{cluster_name="` + idle + `"} 1`:                               true,
					`envoy_cluster_circuit_breakers_default_rq_open{cluster_name="` + idle + `"} 0`:                 true,
					`envoy_http_downstream_rq_xx{envoy_response_code_class="4",http_conn_manager_prefix="outbound_`: true,
					`envoy_cluster_membership_total{cluster_name="xds-grpc"} 1`:                                     true,
					`envoy_cluster_circuit_breakers_high_rq_open{cluster_name="` + idle + `"} 0`:                    false,
					`envoy_cluster_membership_excluded{cluster_name="` + idle + `"} 0`:                              false,
					`envoy_cluster_circuit_breakers_high_rq_open{cluster_name="` + inbound + `"} 0`:                 true,
					// made at its first use
					`envoy_cluster_upstream_rq_total{cluster_name="` + idle + `"}`: false,
				})
			}
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
