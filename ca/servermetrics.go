package ca

import "github.com/prometheus/client_golang/prometheus"

// serverMetrics carry Istio's names where it has one.
type serverMetrics struct {
	requests, success, unproven prometheus.Counter
	issued                      *prometheus.CounterVec // by attestor
	refused                     *prometheus.CounterVec // by reason
	latency                     prometheus.Histogram
	inFlight                    prometheus.Gauge
}

// newServerMetrics registers them with r, which may be nil. Errors: a name that is registered
// already.
func newServerMetrics(r prometheus.Registerer) (*serverMetrics, error) {
	m := &serverMetrics{
		requests: prometheus.NewCounter(prometheus.CounterOpts{Name: "citadel_server_csr_count",
			Help: "Certificates that proven callers asked for."}),
		success: prometheus.NewCounter(prometheus.CounterOpts{Name: "citadel_server_success_cert_issuance_count",
			Help: "Certificates that were issued."}),
		unproven: prometheus.NewCounter(prometheus.CounterOpts{Name: "citadel_server_authentication_failure_count",
			Help: "Calls whose proof of identity was refused."}),
		issued: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "ashore_ca_issued_total",
			Help: "Certificates that were issued, by proof of identity."}, []string{"how"}),
		refused: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "ashore_ca_refused_total",
			Help: "Calls that got no certificate, by reason."}, []string{"reason"}),
		latency: prometheus.NewHistogram(prometheus.HistogramOpts{Name: "ashore_ca_seconds",
			Help:    "Seconds that a call for a certificate takes.",
			Buckets: []float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10}}),
		inFlight: prometheus.NewGauge(prometheus.GaugeOpts{Name: "ashore_ca_in_flight",
			Help: "Calls for a certificate that are worked on or wait."}),
	}
	if r == nil {
		return m, nil
	}
	for _, c := range []prometheus.Collector{m.requests, m.success, m.unproven, m.issued, m.refused, m.latency,
		m.inFlight} {
		if err := r.Register(c); err != nil {
			return nil, err
		}
	}
	return m, nil
}
