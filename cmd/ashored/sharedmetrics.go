package main

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/ashore-mesh/ashore/filestore/consul"
)

// sharedMetrics tells how this replica and the store in Consul stand. Safe for concurrent use.
type sharedMetrics struct {
	store                                              *consul.Store
	touch, writable, sequence, written, races, unknown *prometheus.Desc
}

func newSharedMetrics(s *consul.Store) *sharedMetrics {
	desc := func(name, help string) *prometheus.Desc { return prometheus.NewDesc(name, help, nil, nil) }
	return &sharedMetrics{
		store: s,
		touch: desc("ashore_store_in_touch", "1 while Consul tells what is in the shared store."),
		writable: desc("ashore_store_writable",
			"1 while Consul takes what is written to the shared store, as far as is known."),
		sequence: desc("ashore_store_sequence",
			"The number of the newest entry of the shared store's log that this replica knows."),
		written: desc("ashore_store_entries_written_total",
			"Entries that this replica wrote into the shared store's log."),
		races: desc("ashore_store_races_total",
			"How often another replica was faster, so that a write was tried again."),
		unknown: desc("ashore_store_unknown_writes_total",
			"Writes of which nobody knows whether they were done, as Consul's answer was lost."),
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
	ch <- prometheus.MustNewConstMetric(m.sequence, prometheus.GaugeValue, float64(n.Sequence))
	ch <- prometheus.MustNewConstMetric(m.written, prometheus.CounterValue, float64(n.Written))
	ch <- prometheus.MustNewConstMetric(m.races, prometheus.CounterValue, float64(n.Lost))
	ch <- prometheus.MustNewConstMetric(m.unknown, prometheus.CounterValue, float64(n.Unknown))
}
