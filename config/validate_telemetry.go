package config

import (
	"regexp"
	"slices"
	"strings"

	telemetry "istio.io/api/telemetry/v1alpha1"

	"github.com/ashore-mesh/ashore/internal/envoylabel"
)

// tracing checks which spans a proxy reports.
func (c *checker) tracing(path string, t *telemetry.Tracing) {
	if len(t.Providers) > 1 {
		c.warnf(path+".providers", "spans go to the first provider: remove the other %d", len(t.Providers)-1)
	}
}

// metrics checks how one kind of metrics is made.
func (c *checker) metrics(path string, m *telemetry.Metrics) {
	if m.ReportingInterval != nil {
		c.warnf(path+".reportingInterval",
			"this has no effect: proxies count connections when they open and when they end")
	}
}

// metric checks which metric is changed.
func (c *checker) metric(path string, m *telemetry.MetricSelector) {
	switch m.GetMetric() {
	case telemetry.MetricSelector_GRPC_REQUEST_MESSAGES, telemetry.MetricSelector_GRPC_RESPONSE_MESSAGES:
		c.unsupported(path+".metric", "a change of "+m.GetMetric().String(),
			"remove it; Envoy counts messages by cluster")
	}
}

// tagOverride checks what becomes of one tag of a metric.
func (c *checker) tagOverride(path string, o *telemetry.MetricsOverrides_TagOverride) {
	switch remove := o.Operation == telemetry.MetricsOverrides_TagOverride_REMOVE; {
	case remove && o.Value != "":
		c.errorf(path+".value", "a tag that is removed has no value: leave out the value, or the operation")
	case !remove && o.Value == "":
		c.errorf(path+".value", "the value is missing: write an expression such as request.host, or operation: REMOVE")
	}
}

// checkTag is the rule for the name of a metric's tag. Source: Prometheus, label names.
func checkTag(name string) string {
	if !regexp.MustCompile(`^[a-zA-Z_][a-zA-Z0-9_]*$`).MatchString(name) {
		return quote(name) + " is not the name of a tag: use letters, digits and \"_\""
	}
	// The agent computes other labels from these, and Prometheus has "le".
	reserved := append(envoylabel.All(), "cluster_name", "le")
	if slices.Contains(reserved, name) || strings.HasPrefix(name, "__") {
		return quote(name) + " is reserved: choose another name"
	}
	return ""
}
