package telemetry

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	accesslogv3 "github.com/envoyproxy/go-control-plane/envoy/config/accesslog/v3"
	statslogv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/access_loggers/stats/v3"
	telemetry "istio.io/api/telemetry/v1alpha1"

	"github.com/ashore-mesh/ashore/config"
	"github.com/ashore-mesh/ashore/internal/envoylabel"
)

// overrides are the changes of metrics, by the name of the statistic.
type overrides map[string]*override

// override is the change of one metric.
type override struct {
	disabled bool
	// tags has the expressions of tags; an empty one removes the tag.
	tags map[string]string
}

// maxTag limits the value of a tag that an operator configured, in bytes: callers may choose it.
const maxTag = 128

// statistics has the statistic of each metric that loggers count.
func statistics() map[telemetry.MetricSelector_IstioMetric]string {
	return map[telemetry.MetricSelector_IstioMetric]string{
		telemetry.MetricSelector_REQUEST_COUNT:          "requests_total",
		telemetry.MetricSelector_REQUEST_DURATION:       "request_duration_milliseconds",
		telemetry.MetricSelector_REQUEST_SIZE:           "request_bytes",
		telemetry.MetricSelector_RESPONSE_SIZE:          "response_bytes",
		telemetry.MetricSelector_TCP_OPENED_CONNECTIONS: "tcp_connections_opened_total",
		telemetry.MetricSelector_TCP_CLOSED_CONNECTIONS: "tcp_connections_closed_total",
		telemetry.MetricSelector_TCP_SENT_BYTES:         "tcp_sent_bytes_total",
		telemetry.MetricSelector_TCP_RECEIVED_BYTES:     "tcp_received_bytes_total",
	}
}

// overrides returns the changes of a side's metrics, and whether Prometheus gets any metrics.
func (s Settings) overrides(by Reporter) (o overrides, counts bool) {
	var levels [][]*telemetry.Metrics
	for _, spec := range s.specs() {
		levels = append(levels, spec.Metrics)
	}
	o = overrides{}
	for _, name := range statistics() {
		o[name] = &override{tags: map[string]string{}}
	}
	isPrometheus := func(name string) bool { return s.provider(name, config.Metrics) != nil }
	defaults := s.mesh.Config.GetDefaultProviders().GetMetrics()
	inScope := eachEntry(levels, defaults, func(m *telemetry.Metrics, provider string) {
		if !isPrometheus(provider) {
			return
		}
		for _, change := range m.Overrides {
			if by.matches(change.GetMatch().GetMode()) {
				o.apply(change)
			}
		}
	})
	return o, slices.ContainsFunc(inScope, isPrometheus)
}

// apply applies a change to the metrics that it matches.
func (o overrides) apply(change *telemetry.MetricsOverrides) {
	for metric, name := range statistics() {
		if m := change.GetMatch().GetMetric(); m != telemetry.MetricSelector_ALL_METRICS && m != metric {
			continue
		}
		if change.Disabled != nil {
			o[name].disabled = change.Disabled.Value
		}
		for tag, to := range change.TagOverrides {
			o[name].tags[tag] = to.GetValue()
		}
	}
}

// loggers returns the logger of statistics after the changes; none if all of them are disabled.
func (o overrides) loggers(c *statslogv3.Config, filter *accesslogv3.AccessLogFilter) []*accesslogv3.AccessLog {
	c.Counters = slices.DeleteFunc(c.Counters,
		func(x *statslogv3.Config_Counter) bool { return !o.keeps(x.Stat) })
	c.Histograms = slices.DeleteFunc(c.Histograms,
		func(x *statslogv3.Config_Histogram) bool { return !o.keeps(x.Stat) })
	if len(c.Counters)+len(c.Histograms) == 0 {
		return nil
	}
	return []*accesslogv3.AccessLog{logger(c, filter)}
}

// keeps changes the tags of a statistic, and reports whether it is enabled.
func (o overrides) keeps(s *statslogv3.Config_Stat) bool {
	change := o[s.Name]
	s.Tags = slices.DeleteFunc(slices.Clone(s.Tags), func(t *statslogv3.Config_Tag) bool {
		_, changed := change.tags[t.Name]
		return changed
	})
	var removed []string
	for _, name := range slices.Sorted(maps.Keys(change.tags)) {
		if value := change.tags[name]; value != "" {
			s.Tags = append(s.Tags, tag(name, fmt.Sprintf("%%CEL(%s):%d%%", value, maxTag), nil))
		} else {
			removed = append(removed, name)
		}
	}
	if removed != nil {
		s.Tags = append(s.Tags, tag(envoylabel.RemovedTags, strings.Join(removed, ","), nil))
	}
	return !change.disabled
}
