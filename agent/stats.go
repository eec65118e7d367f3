package agent

import (
	metricsv3 "github.com/envoyproxy/go-control-plane/envoy/config/metrics/v3"
	matcherv3 "github.com/envoyproxy/go-control-plane/envoy/type/matcher/v3"
	"google.golang.org/protobuf/types/known/wrapperspb"
)

// statsConfig takes the names of clusters, listeners and routes out of the names of metrics and makes them labels.
// Envoy's own rules end a name at its first dot, and host names have dots.
func statsConfig() *metricsv3.StatsConfig {
	// What follows a cluster's name in the name of a counter.
	const clusterParts = `(?:assignment_|bind_errors|circuit_breakers\.|external\.upstream_|health_check\.|http[123]\.|` +
		`init_fetch_timeout|internal\.upstream_|lb_|max_host_weight|membership_|original_dst|outlier_detection\.|retry_or_shadow_|ssl\.|` +
		`tls\.|update_|upstream_|version|warming_state|client_ssl_socket_factory\.)`
	cfg := &metricsv3.StatsConfig{UseAllDefaultTags: wrapperspb.Bool(false)}
	for _, tag := range []struct{ name, regex string }{
		// A ";" ends a name where the control plane put one; otherwise it ends before a known part, at the last place possible.
		{"cluster_name", `^cluster\.((.+?);\.)`},
		{"cluster_name", `^cluster\.(([^;]+)\.)` + clusterParts},
		{"tcp_prefix", `^tcp\.(([^;]+?);?\.)(?:downstream_|upstream_|idle_timeout|max_downstream|on_demand_)`},
		{"http_conn_manager_prefix", `^http\.(([^;]+?);?\.)(?:downstream_|no_cluster|no_route|passthrough_|rq_|rs_too|tracing\.|fault\.|cors\.|user_agent\.)`},
		{"listener_address", `^listener\.((\[?[0-9a-fA-F_.:]+\]?)\.)`},
		{"response_code_class", `_rq(?:_completed)?(_([1-5]xx))$`},
		{"response_code", `_rq(_([1-5][0-9]{2}))$`},
		// Beginnings without a choice: Envoy tries such expressions on names that begin so alone, and each one that it tries on
		// the counters of every cluster costs it more than a second of start with a thousand services.
		{"worker", `^listener\.(?:.*\.)?(worker_([0-9]+)\.)`},
		{"worker", `^listener_manager\.(worker_([0-9]+)\.)`},
		{"worker", `^server\.(worker_([0-9]+)\.)`},
		{"worker", `^thread_local_cluster_manager\.(worker_([0-9]+)\.)`},
	} {
		cfg.StatsTags = append(cfg.StatsTags, &metricsv3.TagSpecifier{
			TagName: tag.name, TagValue: &metricsv3.TagSpecifier_Regex{Regex: tag.regex}})
	}
	return cfg
}

// exact matches one text.
func exact(text string) *matcherv3.StringMatcher {
	return &matcherv3.StringMatcher{MatchPattern: &matcherv3.StringMatcher_Exact{Exact: text}}
}
