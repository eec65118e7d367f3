package xds

import (
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
)

// metrics carry Istio's names where it has one.
type metrics struct {
	pushes      *prometheus.CounterVec
	size        *prometheus.HistogramVec
	convergence prometheus.Histogram
	rejects     *prometheus.CounterVec
	refused     *prometheus.CounterVec
	secrets     *prometheus.CounterVec
}

// newMetrics registers the metrics of a server. It panics if they are registered already.
func newMetrics(s *Server) *metrics {
	auto := promauto.With(s.cfg.Registerer)
	// Counters exist from the start with 0 for these values, so that their first increase counts.
	counters := func(name, help, label string, values ...string) *prometheus.CounterVec {
		c := auto.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, []string{label})
		for _, v := range values {
			c.WithLabelValues(v)
		}
		return c
	}
	var types []string
	for i := range served {
		types = append(types, served[i].name)
	}
	auto.NewGaugeFunc(prometheus.GaugeOpts{Name: "pilot_xds", Help: "Proxies connected."},
		func() float64 { return float64(len(s.clients())) })
	if rt := s.cfg.Runtime; rt != nil {
		auto.NewGaugeFunc(prometheus.GaugeOpts{Name: "ashore_workloads_registered",
			Help: "Workloads that registered themselves, those included whose proxies have just gone."},
			func() float64 { return float64(rt.Registrations().Len()) })
	}
	return &metrics{
		pushes: counters("pilot_xds_pushes", "Responses sent, by type.", "type", types...),
		size: auto.NewHistogramVec(prometheus.HistogramOpts{Name: "pilot_xds_config_size_bytes",
			Buckets: []float64{1e3, 1e4, 1e5, 1e6, 4e6, 1e7, 4e7},
			Help:    "Size of responses, by type."}, []string{"type"}),
		convergence: auto.NewHistogram(prometheus.HistogramOpts{Name: "pilot_proxy_convergence_time",
			Buckets: []float64{.001, .005, .01, .05, .1, .5, 1, 3, 5, 10, 20, 30},
			Help:    "Seconds from a change to its acknowledgement by a proxy."}),
		rejects: counters("pilot_total_xds_rejects", "Responses that proxies rejected, by type.", "type", types...),
		secrets: counters("ashore_secrets_refused_total", "Secrets that proxies asked for and may not have, by reason.",
			"reason", noIdentity, otherNamespace, notUsed),
		refused: counters("pilot_xds_refused_streams", "Streams that were not served, by reason.", "reason",
			"bad node", "certificate expired", "configuration", "not authenticated", "not authenticated any more",
			"not authorized", "not ready", "not registered", "too many streams", "too much memory"),
	}
}
