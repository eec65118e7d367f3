package server

import (
	"slices"
	"strings"
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
	reg.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
		collectFunc(func(emit emitFunc) {
			emit("istio_build", "Istio component build info", 1, "component", "pilot", "tag", version)
			emit("pilot_info", "Pilot version and build information.", 1, "version", version)
		}))
	return reg
}

// collectFunc is a collector that reads its values when it is scraped. It is unchecked: it describes
// no metrics in advance.
type collectFunc func(emit emitFunc)

// collect adds metrics that are read when they are scraped.
func (s *Server) collect(f func(emitFunc)) { s.registry.MustRegister(collectFunc(f)) }

// emitFunc sends one value. Labels are pairs of name and value. A name that ends in _total is a
// counter, any other a gauge.
type emitFunc func(name, help string, value float64, labels ...string)

// Describe implements prometheus.Collector.
func (collectFunc) Describe(chan<- *prometheus.Desc) {}

// Collect implements prometheus.Collector.
func (f collectFunc) Collect(ch chan<- prometheus.Metric) {
	f(func(name, help string, value float64, labels ...string) {
		var names, values []string
		for pair := range slices.Chunk(labels, 2) {
			names, values = append(names, pair[0]), append(values, pair[1])
		}
		kind := prometheus.GaugeValue
		if strings.HasSuffix(name, "_total") {
			kind = prometheus.CounterValue
		}
		ch <- prometheus.MustNewConstMetric(prometheus.NewDesc(name, help, names, nil), kind, value, values...)
	})
}

// summaryMetrics reports the counts of a Status.
func summaryMetrics(status func() admin.Status) func(emitFunc) {
	return func(emit emitFunc) {
		s := status()
		emit("pilot_services", "Total services known to pilot.", float64(s.Config.Services))
		emit("pilot_virt_services", "Total virtual services known to pilot.",
			float64(s.Config.Objects[string(config.VirtualService)]))
		emit("ashore_endpoints", "Endpoints of all services.", float64(s.Config.Endpoints))
		for kind, n := range s.Config.Objects {
			emit("ashore_config_objects", "Active configuration objects, by kind.", float64(n), "kind", kind)
		}
		const problems, problemsHelp = "ashore_config_problems", "Problems of the configuration, by severity."
		emit(problems, problemsHelp, float64(s.Config.Errors), "severity", "error")
		emit(problems, problemsHelp, float64(s.Config.Warnings), "severity", "warning")
		emit("ashore_config_conflicts", "Definitions and parts of services that another source overrides.",
			float64(s.Config.Conflicts))
		for _, src := range s.Sources {
			emitSource(emit, &src, time.Now())
		}
	}
}

// emitSource reports one source.
func emitSource(emit emitFunc, src *feed.SourceStatus, now time.Time) {
	source := func(name, help string, value float64) {
		emit(name, help, value, "source", src.Name)
	}
	age := 0.0
	if src.Error != "" {
		age = max(0, now.Sub(src.ErrorSince).Seconds())
	}
	source("ashore_source_synced", "1 when a source has delivered its first complete state.", truth(src.Synced))
	source("ashore_source_items", "Items that a source supplies.", float64(src.Items))
	source("ashore_source_retained_items",
		"Items that are used although the source does not supply them any more.", float64(src.Retained))
	source("ashore_source_up", "1 when a source reaches its origin.", truth(src.Error == ""))
	source("ashore_source_age_seconds", "How long a source has been down; 0 when it is up.", age)
	if !src.LastUpdate.IsZero() {
		source("ashore_source_last_update_timestamp_seconds", "When a source last sent content.",
			seconds(src.LastUpdate))
	}
}

// truth is 1 for what is true.
func truth(b bool) float64 {
	if b {
		return 1
	}
	return 0
}

// seconds returns a time in seconds since 1970.
func seconds(at time.Time) float64 { return float64(at.UnixMilli()) / 1000 }
