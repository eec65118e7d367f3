package webhook

import (
	"errors"
	"slices"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/ashore-mesh/ashore/config"
	"github.com/ashore-mesh/ashore/internal/connlimit"
)

// metrics are those of a server. Names are Istio's where it has one. No label holds what a stranger
// sent, but for what is known.
type metrics struct {
	passed, failed, broken *prometheus.CounterVec
	requests               *prometheus.CounterVec
	seconds                *prometheus.HistogramVec
	inFlight               prometheus.Gauge
	more                   []prometheus.Collector
}

func newMetrics(c *connlimit.Listener) *metrics {
	counter := func(name, help string, labels ...string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, labels)
	}
	m := &metrics{
		passed: counter("galley_validation_passed", "Resource is valid", "group", "version", "resource"),
		failed: counter("galley_validation_failed", "Resource validation failed", "group", "version", "resource",
			"reason"),
		broken: counter("galley_validation_http_error", "Resource validation http serve errors", "status"),
		requests: counter("ashore_webhook_requests_total", "Requests to validate, by path and status.", "path",
			"status"),
		seconds: prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: "ashore_webhook_seconds",
			Help: "How long a request to validate takes, its way in included.", Buckets: prometheus.ExponentialBuckets(0.0005, 4, 8)}, []string{"path"}),
		inFlight: prometheus.NewGauge(prometheus.GaugeOpts{Name: "ashore_webhook_in_flight",
			Help: "Requests to validate that are being answered or wait."}),
	}
	m.more = []prometheus.Collector{
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "ashore_webhook_connections",
			Help: "Connections for requests to validate."},
			func() float64 { open, _ := c.Numbers(); return float64(open) }),
		prometheus.NewCounterFunc(prometheus.CounterOpts{Name: "ashore_webhook_connections_refused_total",
			Help: "Connections that were refused because there were too many."},
			func() float64 { _, refused := c.Numbers(); return float64(refused) }),
	}
	return m
}

// register has all of them collected. Errors: one is registered already.
func (m *metrics) register(r prometheus.Registerer) error {
	var errs []error
	for _, c := range append([]prometheus.Collector{m.passed, m.failed, m.broken, m.requests, m.seconds, m.inFlight}, m.more...) {
		errs = append(errs, r.Register(c))
	}
	return errors.Join(errs...)
}

// request counts one that was answered; path is one that there is, or other.
func (m *metrics) request(path string, code int, took time.Duration) {
	status := strconv.Itoa(code)
	m.requests.WithLabelValues(path, status).Inc()
	m.seconds.WithLabelValues(path).Observe(took.Seconds())
	if path == reviewPath && code >= 400 {
		m.broken.WithLabelValues(status).Inc()
	}
}

// review counts a judgement; why is empty when it is good.
func (m *metrics) review(r *request, why string) {
	group, version, resource := known(r)
	if why == "" {
		m.passed.WithLabelValues(group, version, resource).Inc()
		return
	}
	m.failed.WithLabelValues(group, version, resource, why).Inc()
}

// known are the group, version and resource of a request where they are of the table of kinds, else
// empty.
func known(r *request) (group, version, resource string) {
	for _, k := range config.Kinds() {
		if k.Group != r.Resource.Group || k.Plural != r.Resource.Resource {
			continue
		}
		if slices.Contains(k.Versions, r.Resource.Version) {
			version = r.Resource.Version
		}
		return k.Group, version, k.Plural
	}
	return "", "", ""
}
