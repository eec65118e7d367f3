package agent

import (
	metricsv3 "github.com/envoyproxy/go-control-plane/envoy/config/metrics/v3"
	matcherv3 "github.com/envoyproxy/go-control-plane/envoy/type/matcher/v3"
	"google.golang.org/protobuf/types/known/wrapperspb"
)

// statsConfig takes the names of clusters, listeners and routes out of the names of metrics and makes them labels.
// Envoy's own rules end a name at its first dot, and host names have dots. It also leaves out what unneededStats matches.
//
// Expressions of ours cost: Envoy runs them by std::regex, 5 to 10 µs for a name whether it matches or not, on each counter of
// each cluster while it starts. So one of ours at most may be tried on what all clusters have. One with a prefix ("^cluster\.")
// is tried on names that begin so, one without on every name. Envoy's own ones, without an expression here, look for a fixed
// text first.
func statsConfig() *metricsv3.StatsConfig {
	cfg := &metricsv3.StatsConfig{UseAllDefaultTags: wrapperspb.Bool(false)}
	for _, tag := range []struct{ name, regex string }{
		// A ";" ends a name where the control plane put one; otherwise it ends before a known part, at the last place possible.
		{"cluster_name", `^cluster\.(([^;]+)(?:;\.|\.(?=` + clusterParts + `)))`},
		{"tcp_prefix", `^tcp\.(([^;]+?);?\.)(?:downstream_|upstream_|idle_timeout|max_downstream|on_demand_)`},
		{"http_conn_manager_prefix", `^http\.(([^;]+?);?\.)(?:downstream_|no_cluster|no_route|passthrough_|rq_|rs_too|tracing\.|fault\.|cors\.|user_agent\.)`},
		{"listener_address", `^listener\.((\[?[0-9a-fA-F_.:]+\]?)\.)`},
		{"envoy.response_code", ""},
		{"envoy.response_code_class", ""},
		{"worker", `^listener\.(?:.*\.)?(worker_([0-9]+)\.)`},
		{"worker", `^listener_manager\.(worker_([0-9]+)\.)`},
		{"worker", `^server\.(worker_([0-9]+)\.)`},
		{"worker", `^thread_local_cluster_manager\.(worker_([0-9]+)\.)`},
	} {
		spec := &metricsv3.TagSpecifier{TagName: tag.name}
		if tag.regex != "" {
			spec.TagValue = &metricsv3.TagSpecifier_Regex{Regex: tag.regex}
		}
		cfg.StatsTags = append(cfg.StatsTags, spec)
	}
	cfg.StatsMatcher = &metricsv3.StatsMatcher{StatsMatcher: &metricsv3.StatsMatcher_ExclusionList{
		ExclusionList: &matcherv3.ListStringMatcher{Patterns: []*matcherv3.StringMatcher{{
			MatchPattern: &matcherv3.StringMatcher_SafeRegex{SafeRegex: &matcherv3.RegexMatcher{Regex: unneededStats}}}}}}}
	return cfg
}

// clusterParts is what follows a cluster's name in the name of a metric.
const clusterParts = `(?:upstream_|membership_|circuit_breakers\.|ssl\.|outlier_detection\.|lb_|assignment_|bind_errors|` +
	`external\.upstream_|health_check\.|http[123]\.|init_fetch_timeout|internal\.upstream_|max_host_weight|original_dst|` +
	`retry_or_shadow_|tls\.|update_|version|warming_state|client_ssl_socket_factory\.)`

// unneededStats matches metrics that Envoy would make for each destination of the mesh whether it is used or not (those of
// traffic are made at its first use), and that tell nothing there: what the agent and the control plane know about the delivery
// of configuration, features that no cluster of the mesh uses, what is the same for all clusters, and what another one tells.
// Those of a thousand services are more than a hundred thousand, 30 MB and a second of start.
const unneededStats = `cluster\.outbound\|.*;\.(?:` +
	// delivery: one for each cluster, of one stream for all
	`assignment_.*|init_fetch_timeout|update_.*|version|version_text|warming_state|` +
	// not used by mesh clusters: balancing by subsets of a cluster, zones relative to a local cluster, requests of high priority,
	// weights of the balancer, stapled OCSP, hashes of certificates
	`lb_local_cluster_not_ok|lb_recalculate_zone_structures|lb_subsets_.*|lb_zone_.*|circuit_breakers\.high\..*|max_host_weight|` +
	`ssl\.ocsp_.*|ssl\.fail_verify_cert_hash|ssl\.session_reused|` +
	// the same everywhere: this workload's certificate, the roots, and who takes them
	`ssl\.certificate\..*|client_ssl_socket_factory\..*|ssl\.no_certificate|` +
	// redundant with upstream_cx_overflow, upstream_rq_retry_overflow and upstream_cx_total, or by ssl.connection_error
	`circuit_breakers\.default\.(?:remaining_.*|cx_pool_open|rq_retry_open)|ssl\.handshake|ssl\.fail_verify_no_cert|` +
	// redundant with membership_healthy and membership_total
	`membership_(?:change|degraded|excluded)|[^.]*\.total_match_count|` +
	// outliers of kinds that no rule asks for, what was found and not ejected, and Envoy's former names
	`outlier_detection\.ejections_(?:detected_.*|total|consecutive_5xx|.*success_rate|.*failure_percentage))`

// exact matches one text.
func exact(text string) *matcherv3.StringMatcher {
	return &matcherv3.StringMatcher{MatchPattern: &matcherv3.StringMatcher_Exact{Exact: text}}
}
