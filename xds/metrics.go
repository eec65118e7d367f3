package xds

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"github.com/ashore-mesh/ashore/registry"
)

// metrics carry Istio's names where it has one.
type metrics struct {
	pushes      *prometheus.CounterVec
	pushTime    *prometheus.HistogramVec
	sendTime    prometheus.Histogram
	size        *prometheus.HistogramVec
	convergence prometheus.Histogram
	rejects     *prometheus.CounterVec
	stale       *prometheus.CounterVec
	refused     *prometheus.CounterVec

	registered, unregistered, registerErrors prometheus.Counter
}

// newMetrics registers them, and how many workloads rt has, with r. Both may be nil.
func newMetrics(r prometheus.Registerer, rt registry.Runtime) *metrics {
	auto := promauto.With(r)
	counter := func(name, help string) prometheus.Counter {
		return auto.NewCounter(prometheus.CounterOpts{Name: name, Help: help})
	}
	counters := func(name, help, label string) *prometheus.CounterVec {
		return auto.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, []string{label})
	}
	seconds := []float64{.001, .005, .01, .05, .1, .5, 1, 3, 5, 10, 20, 30}
	if rt != nil {
		auto.NewGaugeFunc(prometheus.GaugeOpts{Name: "ashore_workloads_registered",
			Help: "Workloads that registered themselves, those included whose proxies have just gone."},
			func() float64 { return float64(rt.Registrations().Len()) })
	}
	return &metrics{
		pushes: counters("pilot_xds_pushes", "Responses sent, by type.", "type"),
		pushTime: auto.NewHistogramVec(prometheus.HistogramOpts{Name: "pilot_xds_push_time", Buckets: seconds,
			Help: "Seconds to make a response, by type."}, []string{"type"}),
		sendTime: auto.NewHistogram(prometheus.HistogramOpts{Name: "pilot_xds_send_time", Buckets: seconds,
			Help: "Seconds to hand a response to the connection."}),
		size: auto.NewHistogramVec(prometheus.HistogramOpts{Name: "pilot_xds_config_size_bytes",
			Buckets: []float64{1e3, 1e4, 1e5, 1e6, 4e6, 1e7, 4e7}, Help: "Size of responses, by type."}, []string{"type"}),
		convergence: auto.NewHistogram(prometheus.HistogramOpts{Name: "pilot_proxy_convergence_time", Buckets: seconds,
			Help: "Seconds from a change to its acknowledgement by a proxy."}),
		rejects:        counters("pilot_total_xds_rejects", "Responses that proxies rejected, by type.", "type"),
		stale:          counters("pilot_xds_expired_nonce", "Answers to responses that were superseded, by type.", "type"),
		refused:        counters("pilot_xds_refused_streams", "Streams that were not served, by reason.", "reason"),
		registered:     counter("auto_registration_success_total", "Streams whose workload was registered."),
		unregistered:   counter("auto_registration_unregister_total", "Ends of streams whose workload was registered."),
		registerErrors: counter("auto_registration_errors_total", "Streams that may not register a workload."),
	}
}

// observeSince records the time from start to now.
func observeSince(o prometheus.Observer, start, now time.Time) { o.Observe(now.Sub(start).Seconds()) }

// clientMetrics are counted from the streams at each scrape.
type clientMetrics struct {
	server    *Server
	connected *prometheus.Desc
	rejecting map[string]*prometheus.Desc // by type URL
}

var _ prometheus.Collector = (*clientMetrics)(nil)

func newClientMetrics(s *Server) *clientMetrics {
	c := &clientMetrics{server: s, rejecting: map[string]*prometheus.Desc{}}
	c.connected = prometheus.NewDesc("pilot_xds", "Proxies connected, by version.", []string{"version"}, nil)
	for _, typeURL := range []string{ClusterType, EndpointType, ListenerType, RouteType} {
		c.rejecting[typeURL] = prometheus.NewDesc("pilot_xds_"+short(typeURL)+"_reject",
			"Streams of proxies that reject a resource of this type.", nil, nil)
	}
	return c
}

// Describe implements prometheus.Collector.
func (c *clientMetrics) Describe(out chan<- *prometheus.Desc) {
	out <- c.connected
	for _, d := range c.rejecting {
		out <- d
	}
}

// maxVersions is how many versions are told apart: a version is the client's text.
const maxVersions = 64

// Collect implements prometheus.Collector.
func (c *clientMetrics) Collect(out chan<- prometheus.Metric) {
	versions, rejecting := map[string]int{}, map[string]int{}
	for _, st := range c.server.all() {
		st.mu.Lock()
		for _, t := range st.order.All() {
			if len(t.Rejected()) > 0 {
				rejecting[t.Kind().TypeURL]++
			}
		}
		st.mu.Unlock()
		if st.proxy.purpose == forControl {
			continue
		}
		version := st.proxy.Version
		if _, ok := versions[version]; !ok && len(versions) >= maxVersions {
			version = "other"
		}
		versions[version]++
	}
	for version, n := range versions {
		out <- prometheus.MustNewConstMetric(c.connected, prometheus.GaugeValue, float64(n), version)
	}
	for typeURL, d := range c.rejecting {
		out <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, float64(rejecting[typeURL]))
	}
}
