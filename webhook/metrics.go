package webhook

import (
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"github.com/ashore-mesh/ashore/internal/connlimit"
)

// metrics are those of a server. No label holds what a stranger sent.
type metrics struct {
	requests, reviews *prometheus.CounterVec
	seconds           *prometheus.HistogramVec
}

func newMetrics(r prometheus.Registerer, c *connlimit.Listener) *metrics {
	auto := promauto.With(r)
	auto.NewGaugeFunc(prometheus.GaugeOpts{Name: "ashore_webhook_connections",
		Help: "Connections for requests to validate."},
		func() float64 { open, _ := c.Numbers(); return float64(open) })
	auto.NewCounterFunc(prometheus.CounterOpts{Name: "ashore_webhook_connections_refused_total",
		Help: "Connections that were refused because there were too many."},
		func() float64 { _, refused := c.Numbers(); return float64(refused) })
	m := &metrics{
		requests: auto.NewCounterVec(prometheus.CounterOpts{Name: "ashore_webhook_requests_total",
			Help: "Requests to validate, by path and status."}, []string{"path", "status"}),
		reviews: auto.NewCounterVec(prometheus.CounterOpts{Name: "ashore_webhook_reviews_total",
			Help: "Reviews of objects, by whether the object may be written."}, []string{"allowed"}),
		seconds: auto.NewHistogramVec(prometheus.HistogramOpts{Name: "ashore_webhook_seconds",
			Help:    "How long a request to validate takes, its way in included.",
			Buckets: prometheus.ExponentialBuckets(0.0005, 4, 8)}, []string{"path"}),
	}
	m.reviews.WithLabelValues("true") // so that the first increase counts
	m.reviews.WithLabelValues("false")
	return m
}
