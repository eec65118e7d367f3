package server

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/ashore-mesh/ashore/filestore/consul"
)

// sharedMetrics reports the state of the store in Consul. Safe for concurrent use.
type sharedMetrics struct {
	store                                              *consul.Store
	touch, writable, sequence, written, races, unknown *prometheus.Desc
}

func newSharedMetrics(s *consul.Store) *sharedMetrics {
	desc := func(name, help string, labels ...string) *prometheus.Desc {
		return prometheus.NewDesc(name, help, labels, nil)
	}
	return &sharedMetrics{
		store: s,
		touch: desc("ashore_store_in_touch", "1 while the shared store can be read."),
		writable: desc("ashore_store_writable",
			"1 while the shared store can be read and Consul accepts writes to it."),
		sequence: desc("ashore_store_sequence",
			"The number of the newest entry that this replica has of a log of the shared store.", "log"),
		written: desc("ashore_store_entries_written_total",
			"Entries that this replica wrote to the shared store."),
		races: desc("ashore_store_races_total",
			"How often another replica was faster, so that a write was tried again."),
		unknown: desc("ashore_store_unknown_writes_total",
			"Writes with an unknown outcome, because Consul's answer was lost."),
	}
}

// Describe implements prometheus.Collector.
func (m *sharedMetrics) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{m.touch, m.writable, m.sequence, m.written, m.races, m.unknown} {
		ch <- d
	}
}

// Collect implements prometheus.Collector.
func (m *sharedMetrics) Collect(ch chan<- prometheus.Metric) {
	n := m.store.Counts()
	touch := m.store.Standing().Error == ""
	ch <- prometheus.MustNewConstMetric(m.touch, prometheus.GaugeValue, map[bool]float64{true: 1}[touch])
	ch <- prometheus.MustNewConstMetric(m.writable, prometheus.GaugeValue,
		map[bool]float64{true: 1}[touch && m.store.Refused().Error == ""])
	for name, revision := range n.Revisions {
		ch <- prometheus.MustNewConstMetric(m.sequence, prometheus.GaugeValue, float64(revision), name)
	}
	ch <- prometheus.MustNewConstMetric(m.written, prometheus.CounterValue, float64(n.Written))
	ch <- prometheus.MustNewConstMetric(m.races, prometheus.CounterValue, float64(n.Lost))
	ch <- prometheus.MustNewConstMetric(m.unknown, prometheus.CounterValue, float64(n.Unknown))
}
