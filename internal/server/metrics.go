package server

import (
	"cmp"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"

	"github.com/ashore-mesh/ashore/config"
	"github.com/ashore-mesh/ashore/internal/admin"
	"github.com/ashore-mesh/ashore/internal/build"
	"github.com/ashore-mesh/ashore/internal/feed"
)

// newRegistry returns a registry with the metrics of the Go runtime, the process and the build. Names
// are Istio's where it has one.
func newRegistry() *prometheus.Registry {
	reg := prometheus.NewRegistry()
	version := build.Read().Version
	reg.MustRegister(
		collectors.NewGoCollector(),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
		constant("istio_build", "Istio component build info", prometheus.Labels{"component": "pilot", "tag": version}),
		constant("pilot_info", "Pilot version and build information.", prometheus.Labels{"version": version}),
	)
	return reg
}

func constant(name, help string, labels prometheus.Labels) prometheus.Collector {
	return prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: name, Help: help, ConstLabels: labels},
		func() float64 { return 1 })
}

// counts are the counts of a Status as metrics, taken when they are asked for.
type counts struct {
	status                                                   func() admin.Status
	services, virtual, endpoints, objects, contexts          *prometheus.Desc
	problems, conflicts                                      *prometheus.Desc
	synced, items, updated, up, age, retained, sourceProblem *prometheus.Desc
}

func newCounts(status func() admin.Status) *counts {
	desc := prometheus.NewDesc
	return &counts{
		status:    status,
		services:  desc("pilot_services", "Total services known to pilot.", nil, nil),
		virtual:   desc("pilot_virt_services", "Total virtual services known to pilot.", nil, nil),
		endpoints: desc("ashore_endpoints", "Endpoints of all services.", nil, nil),
		objects:   desc("ashore_config_objects", "Configuration objects in use, by kind.", []string{"kind"}, nil),
		problems: desc("ashore_config_problems", "Things that are wrong with the configuration, by severity.",
			[]string{"severity"}, nil),
		conflicts: desc("ashore_config_conflicts",
			"Contradictions between sources: definitions, and parts of services, that do not count because another source decides.", nil, nil),
		contexts: desc("ashore_contexts_total", "Contexts that were built and published.", nil, nil),
		synced: desc("ashore_source_synced", "1 when a source has delivered its first complete state.",
			[]string{"source"}, nil),
		items: desc("ashore_source_items", "Items that a source supplies.", []string{"source"}, nil),
		updated: desc("ashore_source_last_update_timestamp_seconds", "When a source last sent content.",
			[]string{"source"}, nil),
		up: desc("ashore_source_up", "1 when a source reaches its origin.", []string{"source"}, nil),
		age: desc("ashore_source_age_seconds", "How long a source has been down; 0 when it is up.",
			[]string{"source"}, nil),
		retained: desc("ashore_source_retained_items",
			"Items that are used although the source does not supply them any more.", []string{"source"}, nil),

		sourceProblem: desc("ashore_source_problems", "Problems of a source.", []string{"source"}, nil),
	}
}

// Describe implements prometheus.Collector.
func (c *counts) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{c.services, c.virtual, c.endpoints, c.objects, c.contexts, c.problems,
		c.conflicts,
		c.synced, c.items, c.updated, c.up, c.age, c.retained, c.sourceProblem} {
		ch <- d
	}
}

// Collect implements prometheus.Collector.
func (c *counts) Collect(ch chan<- prometheus.Metric) {
	gauge := func(d *prometheus.Desc, v float64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
	}
	s := c.status()
	gauge(c.services, float64(s.Config.Services))
	gauge(c.virtual, float64(s.Config.Objects[string(config.VirtualService)]))
	gauge(c.endpoints, float64(s.Config.Endpoints))
	for kind, n := range s.Config.Objects {
		gauge(c.objects, float64(n), kind)
	}
	gauge(c.problems, float64(s.Config.Errors), "error")
	gauge(c.problems, float64(s.Config.Warnings), "warning")
	gauge(c.conflicts, float64(s.Config.Conflicts))
	ch <- prometheus.MustNewConstMetric(c.contexts, prometheus.CounterValue, float64(s.Config.Contexts))
	for _, src := range s.Sources {
		c.source(&src, time.Now(), func(d *prometheus.Desc, v float64) { gauge(d, v, cmp.Or(src.Setting, src.Name)) })
	}
}

// source reports one source.
func (c *counts) source(src *feed.SourceStatus, now time.Time, gauge func(*prometheus.Desc, float64)) {
	gauge(c.synced, truth(src.Synced))
	gauge(c.items, float64(src.Items))
	gauge(c.retained, float64(src.Retained))
	gauge(c.sourceProblem, float64(src.Problems))
	gauge(c.up, truth(src.Error == ""))
	age := 0.0
	if src.Error != "" {
		age = max(0, now.Sub(src.ErrorSince).Seconds())
	}
	gauge(c.age, age)
	if !src.LastUpdate.IsZero() {
		gauge(c.updated, float64(src.LastUpdate.UnixMilli())/1000)
	}
}

// truth is 1 for what is true.
func truth(b bool) float64 {
	if b {
		return 1
	}
	return 0
}
