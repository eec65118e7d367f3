package agent

import (
	"errors"
	"sync"

	"github.com/ashore-mesh/ashore/agent/probe"
)

// notChecked is the reason of a workload that is unhealthy at first.
const notChecked = "the application was not checked yet"

// healthReporter combines the health of the application, of Envoy and of the agent, and reports
// changes. Safe for concurrent use.
type healthReporter struct {
	report func(probe.Health) // immutable; called in the order of the changes

	mu      sync.Mutex
	resumed bool          // guarded by mu: the report of the previous agent holds until app is known
	app     *probe.Health // guarded by mu; nil: not checked yet
	proxy   error         // guarded by mu: why Envoy is not ready; nil: it is
	noRules bool          // guarded by mu: the interception rules are missing
	ending  bool          // guarded by mu
	last    *probe.Health // guarded by mu: as reported; nil: nothing
}

// setApp records the health of the application.
func (r *healthReporter) setApp(h probe.Health) { r.change(func() { r.app = &h }) }

// setProxy records why Envoy is not ready, nil when it is, and whether the interception rules are
// installed.
func (r *healthReporter) setProxy(err error, intercepted bool) {
	r.change(func() { r.proxy, r.noRules = err, !intercepted })
}

// end makes the workload unhealthy and Envoy not ready for good.
func (r *healthReporter) end() { r.change(func() { r.ending = true }) }

// ready returns nil if Envoy serves with a configuration of the control plane, else what is missing.
func (r *healthReporter) ready() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.ending {
		return errors.New("draining: this proxy is about to end")
	}
	return r.proxy
}

func (r *healthReporter) change(f func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	f()
	if r.resumed && !r.ending && r.app == nil {
		return
	}
	h := probe.Health{Reason: r.reason()}
	if r.app != nil {
		h.Ports = r.app.Ports
	}
	if r.last == nil || *r.last != h {
		r.last = &h
		r.report(h)
	}
}

// reason returns why the workload is unhealthy; empty: it is healthy. r.mu is held.
func (r *healthReporter) reason() string {
	switch {
	case r.ending:
		return "this proxy is about to end"
	case r.app != nil && r.app.Reason != "":
		return r.app.Reason
	case r.proxy != nil:
		return "the proxy is not ready: " + r.proxy.Error()
	case r.noRules:
		return notIntercepted
	case r.app == nil:
		return notChecked
	}
	return ""
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
