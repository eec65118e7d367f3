package xds

import (
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/ashore-mesh/ashore/registry"
)

// metrics carry Istio's names where it has one.
type metrics struct {
	connected   *connected
	pushes      *prometheus.CounterVec
	pushTime    *prometheus.HistogramVec
	sendTime    prometheus.Histogram
	size        *prometheus.HistogramVec
	convergence prometheus.Histogram
	rejects     *prometheus.CounterVec
	rejecting   map[string]prometheus.Gauge // by type
	stale       *prometheus.CounterVec
	refused     *prometheus.CounterVec

	registered, unregistered, registerErrors prometheus.Counter
}

// newMetrics registers them, and how many workloads rt has, with r; both may be nil. Errors: a name
// that is registered already.
func newMetrics(r prometheus.Registerer, rt registry.Runtime) (*metrics, error) {
	seconds := []float64{.001, .005, .01, .05, .1, .5, 1, 3, 5, 10, 20, 30}
	m := &metrics{
		connected: &connected{
			gauge: prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "pilot_xds",
				Help: "Proxies connected, by version."}, []string{"version"}),
			counts: map[string]int{},
		},
		pushes: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "pilot_xds_pushes",
			Help: "Responses sent, by type."}, []string{"type"}),
		pushTime: prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: "pilot_xds_push_time", Buckets: seconds,
			Help: "Seconds to make a response, by type."}, []string{"type"}),
		sendTime: prometheus.NewHistogram(prometheus.HistogramOpts{Name: "pilot_xds_send_time", Buckets: seconds,
			Help: "Seconds to hand a response to the connection."}),
		size: prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: "pilot_xds_config_size_bytes",
			Buckets: []float64{1e3, 1e4, 1e5, 1e6, 4e6, 1e7,
				4e7}, Help: "Size of responses, by type."}, []string{"type"}),
		convergence: prometheus.NewHistogram(prometheus.HistogramOpts{Name: "pilot_proxy_convergence_time",
			Buckets: seconds,
			Help:    "Seconds from a change to its acknowledgement by a proxy."}),
		rejects: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "pilot_total_xds_rejects",
			Help: "Responses that proxies rejected, by type."}, []string{"type"}),
		stale: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "pilot_xds_expired_nonce",
			Help: "Answers to responses that were superseded, by type."}, []string{"type"}),
		refused: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "pilot_xds_refused_streams",
			Help: "Streams that were not served, by reason."}, []string{"reason"}),
		registered: prometheus.NewCounter(prometheus.CounterOpts{Name: "auto_registration_success_total",
			Help: "Streams whose workload was registered."}),
		unregistered: prometheus.NewCounter(prometheus.CounterOpts{Name: "auto_registration_unregister_total",
			Help: "Ends of streams whose workload was registered."}),
		registerErrors: prometheus.NewCounter(prometheus.CounterOpts{Name: "auto_registration_errors_total",
			Help: "Streams that may not register a workload."}),
	}
	m.rejecting = map[string]prometheus.Gauge{}
	all := []prometheus.Collector{m.connected.gauge, m.pushes, m.pushTime, m.sendTime, m.size, m.convergence, m.rejects,
		m.stale, m.refused, m.registered, m.unregistered, m.registerErrors}
	if rt != nil {
		all = append(all, prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "ashore_workloads_registered",
			Help: "Workloads that registered themselves, those included whose proxies have just gone."},
			func() float64 { return float64(rt.Registrations().Len()) }))
	}
	for _, t := range []string{"cds", "eds", "lds", "rds"} {
		g := prometheus.NewGauge(prometheus.GaugeOpts{Name: "pilot_xds_" + t + "_reject",
			Help: "Streams of proxies that reject a resource of this type."})
		m.rejecting[t] = g
		all = append(all, g)
	}
	if r == nil {
		return m, nil
	}
	for _, c := range all {
		if err := r.Register(c); err != nil {
			return nil, err
		}
	}
	return m, nil
}

// observeSince records the time from start to now.
func observeSince(o prometheus.Observer, start, now time.Time) { o.Observe(now.Sub(start).Seconds()) }

// connected counts clients by the version that they say they have. It is their text: a version that
// nobody has any more is dropped, and of different ones at one time only so many are told apart.
// Safe for concurrent use.
type connected struct {
	gauge *prometheus.GaugeVec

	mu     sync.Mutex
	counts map[string]int // guarded by mu
}

// maxVersions is how many versions are told apart.
const maxVersions = 64

// join counts a client. It returns what it is counted as, for leave.
func (c *connected) join(version string) (as string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if _, ok := c.counts[version]; !ok && len(c.counts) >= maxVersions {
		version = "other"
	}
	c.change(version, 1)
	return version
}

// leave counts a client no more.
func (c *connected) leave(as string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.change(as, -1)
}

// change is called with mu held.
func (c *connected) change(version string, n int) {
	c.counts[version] += n
	c.gauge.WithLabelValues(version).Set(float64(c.counts[version]))
	if c.counts[version] == 0 {
		delete(c.counts, version)
		c.gauge.DeleteLabelValues(version)
	}
}
