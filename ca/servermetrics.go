package ca

import (
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
)

type serverMetrics struct {
	issued  *prometheus.CounterVec // by proof
	refused *prometheus.CounterVec // by reason
	latency prometheus.Histogram
}

// newServerMetrics registers them with r, which may be nil.
func newServerMetrics(r prometheus.Registerer) serverMetrics {
	auto := promauto.With(r)
	return serverMetrics{
		issued: auto.NewCounterVec(prometheus.CounterOpts{Name: "ashore_ca_issued_total",
			Help: "Certificates that were issued, by proof of identity."}, []string{"how"}),
		refused: auto.NewCounterVec(prometheus.CounterOpts{Name: "ashore_ca_refused_total",
			Help: "Calls that got no certificate, by reason."}, []string{"reason"}),
		latency: auto.NewHistogram(prometheus.HistogramOpts{Name: "ashore_ca_seconds",
			Help:    "Seconds that a call for a certificate takes.",
			Buckets: []float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10}}),
	}
}
