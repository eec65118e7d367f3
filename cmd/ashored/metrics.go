package main

import (
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"

	"github.com/ashore-mesh/ashore/config"
	"github.com/ashore-mesh/ashore/internal/admin"
	"github.com/ashore-mesh/ashore/internal/build"
)

// newRegistry is a registry with what is not of one part: the Go runtime, the process, the build, and
// the counts of status. Names are Istio's where it has one.
func newRegistry(status func() admin.Status) *prometheus.Registry {
	reg := prometheus.NewRegistry()
	version := build.Read().Version
	reg.MustRegister(
		collectors.NewGoCollector(),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
		constant("istio_build", "Istio component build info", prometheus.Labels{"component": "pilot", "tag": version}),
		constant("pilot_info", "Pilot version and build information.", prometheus.Labels{"version": version}),
		newCounts(status),
	)
	return reg
}

func constant(name, help string, labels prometheus.Labels) prometheus.Collector {
	return prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: name, Help: help, ConstLabels: labels}, func() float64 { return 1 })
}

// counts are the counts of a Status as metrics, taken when they are asked for.
type counts struct {
	status                                                                            func() admin.Status
	services, virtual, endpoints, objects, problems, contexts, synced, items, updated *prometheus.Desc
}

func newCounts(status func() admin.Status) *counts {
	desc := prometheus.NewDesc
	return &counts{
		status:    status,
		services:  desc("pilot_services", "Total services known to pilot.", nil, nil),
		virtual:   desc("pilot_virt_services", "Total virtual services known to pilot.", nil, nil),
		endpoints: desc("ashore_endpoints", "Endpoints of all services.", nil, nil),
		objects:   desc("ashore_config_objects", "Configuration objects at work, by kind.", []string{"kind"}, nil),
		problems:  desc("ashore_config_problems", "Things that are wrong with the configuration, by severity.", []string{"severity"}, nil),
		contexts:  desc("ashore_contexts_total", "Contexts that were built and published.", nil, nil),
		synced:    desc("ashore_source_synced", "1 when a source has delivered its first complete state.", []string{"source"}, nil),
		items:     desc("ashore_source_items", "Items that a source supplies.", []string{"source"}, nil),
		updated:   desc("ashore_source_last_update_timestamp_seconds", "When a source last said something.", []string{"source"}, nil),
	}
}

// Describe implements prometheus.Collector.
func (c *counts) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{c.services, c.virtual, c.endpoints, c.objects, c.problems, c.contexts, c.synced, c.items, c.updated} {
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
	ch <- prometheus.MustNewConstMetric(c.contexts, prometheus.CounterValue, float64(s.Config.Contexts))
	for _, src := range s.Sources {
		synced := 0.0
		if src.Synced {
			synced = 1
		}
		gauge(c.synced, synced, src.Name)
		gauge(c.items, float64(src.Items), src.Name)
		if !src.Last.IsZero() {
			gauge(c.updated, float64(src.Last.UnixMilli())/1000, src.Name)
		}
	}
}
