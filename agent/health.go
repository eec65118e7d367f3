package agent

import (
	"sync"

	"github.com/ashore-mesh/ashore/agent/probe"
)

// notChecked is the reason of a workload that is unhealthy at first.
const notChecked = "the application was not checked yet"

// healthReporter combines the health of the application, of Envoy and of the agent, and reports
// changes.
type healthReporter struct {
	report func(probe.Health) // immutable; called in the order of the changes

	mu      sync.Mutex
	resumed bool          // guarded by mu: the report of the previous agent holds until app is known
	app     *probe.Health // guarded by mu; nil: not checked yet
	proxy   string        // guarded by mu: why Envoy is not ready; empty: it is
	ending  bool          // guarded by mu
	last    *probe.Health // guarded by mu: as reported; nil: nothing
}

// setApp records the health of the application.
func (r *healthReporter) setApp(h probe.Health) { r.change(func() { r.app = &h }) }

// setProxy records why Envoy is not ready; empty when it is.
func (r *healthReporter) setProxy(reason string) { r.change(func() { r.proxy = reason }) }

// end makes the workload unhealthy for good.
func (r *healthReporter) end() { r.change(func() { r.ending = true }) }

func (r *healthReporter) change(f func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	f()
	if r.resumed && !r.ending && r.app == nil {
		return
	}
	h := r.combine()
	if r.app != nil {
		h.Ports = r.app.Ports
	}
	if r.last == nil || *r.last != h {
		r.last = &h
		r.report(h)
	}
}

// combine returns the health of all parts together. r.mu is held.
func (r *healthReporter) combine() probe.Health {
	switch {
	case r.ending:
		return probe.Health{Reason: "this proxy is about to end"}
	case r.app != nil && !r.app.Healthy:
		return *r.app
	case r.proxy != "":
		return probe.Health{Reason: r.proxy}
	case r.app == nil:
		return probe.Health{Reason: notChecked}
	}
	return probe.Health{Healthy: true}
}

// Health returns the last report.
func (r *healthReporter) Health() (h probe.Health, reported bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.last == nil {
		return probe.Health{}, false
	}
	return *r.last, true
}
