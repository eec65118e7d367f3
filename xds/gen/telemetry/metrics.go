package telemetry

import (
	xdscorev3 "github.com/cncf/xds/go/xds/core/v3"
	matcherv3 "github.com/cncf/xds/go/xds/type/matcher/v3"
	accesslogv3 "github.com/envoyproxy/go-control-plane/envoy/config/accesslog/v3"
	datalogv3 "github.com/envoyproxy/go-control-plane/envoy/data/accesslog/v3"
	statslogv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/access_loggers/stats/v3"
	transformv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/matching/actions/transform_stat/v3"
	inputv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/matching/common_inputs/stats/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/ashore-mesh/ashore/internal/envoylabel"
	"github.com/ashore-mesh/ashore/xds/gen/envoy"
)

// Reporter is the side that counts.
type Reporter string

// The values of the label reporter. A gateway is the source of what it forwards.
const (
	Source      Reporter = "source"
	Destination Reporter = "destination"
)

// prefix is of all statistics: Envoy's endpoint shows them as envoy_istio_….
const prefix = "istio"

// maxSeries limits the counters of one logger, and its histograms. Those that are not used for a
// while are removed.
const maxSeries = 10_000

// requests returns the logger that counts requests.
func requests(by Reporter, o overrides) []*accesslogv3.AccessLog {
	tags := append(by.tags(),
		tag("request_protocol", "%REQ(CONTENT-TYPE)%", protocolRule()),
		tag("response_code", "%RESPONSE_CODE%", nil),
		tag("grpc_response_status", "%GRPC_STATUS_NUMBER%", statusRule()),
		tag("response_flags", "%RESPONSE_FLAGS%", nil))
	c := &statslogv3.Config{
		Counters:   []*statslogv3.Config_Counter{{Stat: stat("requests_total", tags), ValueFixed: wrapperspb.UInt64(1)}},
		Histograms: []*statslogv3.Config_Histogram{histogram("request_duration_milliseconds", "%DURATION%", tags)},
	}
	if by == Destination { // once for each request of the mesh
		c.Histograms = append(c.Histograms, histogram("request_bytes", "%BYTES_RECEIVED%", tags),
			histogram("response_bytes", "%BYTES_SENT%", tags))
	}
	return o.loggers(c, nil)
}

// connections returns the loggers that count connections: when they are open, and at their end.
// Bytes count at the end, because Envoy's values of open connections are sums.
func connections(by Reporter, o overrides) []*accesslogv3.AccessLog {
	tags := append(by.tags(), tag("request_protocol", "tcp", nil), tag("response_flags", "%RESPONSE_FLAGS%", nil))
	opened := &statslogv3.Config{Counters: []*statslogv3.Config_Counter{
		{Stat: stat("tcp_connections_opened_total", tags), ValueFixed: wrapperspb.UInt64(1)},
	}}
	closed := &statslogv3.Config{Counters: []*statslogv3.Config_Counter{
		{Stat: stat("tcp_connections_closed_total", tags), ValueFixed: wrapperspb.UInt64(1)},
		{Stat: stat("tcp_received_bytes_total", tags), ValueFormat: "%BYTES_RECEIVED%"},
		{Stat: stat("tcp_sent_bytes_total", tags), ValueFormat: "%BYTES_SENT%"},
	}}
	return append(o.loggers(opened, at(datalogv3.AccessLogType_TcpUpstreamConnected)),
		o.loggers(closed, at(datalogv3.AccessLogType_TcpConnectionEnd))...)
}

// tags are those of requests and connections alike.
func (by Reporter) tags() []*statslogv3.Config_Tag {
	service := "%CLUSTER_METADATA(istio:service)%"
	if by == Source {
		service += "%METADATA(ROUTE:istio:service)%" // of a route that answers itself
	}
	tags := []*statslogv3.Config_Tag{tag(envoylabel.Reporter, string(by), nil),
		tag(envoylabel.Service, service, nil)}
	if by == Destination {
		return append(tags, tag(envoylabel.PeerPrincipal, "%DOWNSTREAM_PEER_URI_SAN%", nil),
			tag(envoylabel.PeerWorkload, "%DOWNSTREAM_PEER_DNS_SAN%", nil))
	}
	return append(tags, tag(envoylabel.PeerPrincipal, "%UPSTREAM_PEER_URI_SAN%", nil),
		tag(envoylabel.PeerWorkload, "%UPSTREAM_METADATA(istio:workload)%", nil))
}

func tag(name, format string, rules *matcherv3.Matcher) *statslogv3.Config_Tag {
	return &statslogv3.Config_Tag{Name: name, ValueFormat: format, Rules: rules}
}

func stat(name string, tags []*statslogv3.Config_Tag) *statslogv3.Config_Stat {
	return &statslogv3.Config_Stat{Name: name, Tags: tags}
}

func histogram(name, format string, tags []*statslogv3.Config_Tag) *statslogv3.Config_Histogram {
	return &statslogv3.Config_Histogram{Stat: stat(name, tags), ValueFormat: format}
}

// protocolRule makes "grpc" or "http" of a content type.
func protocolRule() *matcherv3.Matcher {
	return &matcherv3.Matcher{
		MatcherType: &matcherv3.Matcher_MatcherTree_{MatcherTree: &matcherv3.Matcher_MatcherTree{
			Input: extension("value", envoy.Packed(&inputv3.StatTagValueInput{})),
			TreeType: &matcherv3.Matcher_MatcherTree_PrefixMatchMap{PrefixMatchMap: &matcherv3.Matcher_MatcherTree_MatchMap{
				Map: map[string]*matcherv3.Matcher_OnMatch{"application/grpc": value("grpc")},
			}},
		}},
		OnNoMatch: value("http"),
	}
}

// statusRule makes "unknown" of a status that gRPC does not define (0 to 16): servers choose it.
func statusRule() *matcherv3.Matcher {
	const undefined = `-.+|1[7-9]|[2-9][0-9]|[0-9]{3,}`
	match := &matcherv3.StringMatcher{MatchPattern: &matcherv3.StringMatcher_SafeRegex{
		SafeRegex: &matcherv3.RegexMatcher{Regex: undefined,
			EngineType: &matcherv3.RegexMatcher_GoogleRe2{GoogleRe2: &matcherv3.RegexMatcher_GoogleRE2{}}}}}
	predicate := &matcherv3.Matcher_MatcherList_Predicate_SinglePredicate{
		Input:   extension("value", envoy.Packed(&inputv3.StatTagValueInput{})),
		Matcher: &matcherv3.Matcher_MatcherList_Predicate_SinglePredicate_ValueMatch{ValueMatch: match},
	}
	return &matcherv3.Matcher{MatcherType: &matcherv3.Matcher_MatcherList_{MatcherList: &matcherv3.Matcher_MatcherList{
		Matchers: []*matcherv3.Matcher_MatcherList_FieldMatcher{{
			Predicate: &matcherv3.Matcher_MatcherList_Predicate{
				MatchType: &matcherv3.Matcher_MatcherList_Predicate_SinglePredicate_{SinglePredicate: predicate}},
			OnMatch: value("unknown"),
		}},
	}}}
}

// value replaces the value of a tag.
func value(text string) *matcherv3.Matcher_OnMatch {
	return &matcherv3.Matcher_OnMatch{OnMatch: &matcherv3.Matcher_OnMatch_Action{
		Action: extension("value", envoy.Packed(&transformv3.TransformStat{
			UpdateTag: &transformv3.TransformStat_UpdateTag{NewTagValue: text},
		})),
	}}
}

func extension(name string, config *anypb.Any) *xdscorev3.TypedExtensionConfig {
	return &xdscorev3.TypedExtensionConfig{Name: name, TypedConfig: config}
}

func logger(c *statslogv3.Config, filter *accesslogv3.AccessLogFilter) *accesslogv3.AccessLog {
	c.StatsScope = &typev3.Scope{Prefix: prefix, EnableEviction: true, MaxCounters: wrapperspb.UInt32(maxSeries),
		MaxHistograms: wrapperspb.UInt32(maxSeries)}
	return &accesslogv3.AccessLog{Name: "envoy.access_loggers.stats", Filter: filter,
		ConfigType: &accesslogv3.AccessLog_TypedConfig{TypedConfig: envoy.Packed(c)}}
}

// at limits a logger to one moment of a connection.
func at(moment datalogv3.AccessLogType) *accesslogv3.AccessLogFilter {
	return &accesslogv3.AccessLogFilter{FilterSpecifier: &accesslogv3.AccessLogFilter_LogTypeFilter{
		LogTypeFilter: &accesslogv3.LogTypeFilter{Types: []datalogv3.AccessLogType{moment}},
	}}
}
