package agent

import "sync"

// vitals makes one health of what the proxy, the application and the agent's own end say, and reports changes. A workload
// that cannot take requests because its Envoy has just begun is no endpoint yet.
type vitals struct {
	report  func(Health) // set once
	resumed bool         // set once, before the first change: an agent before this one has reported

	mu     sync.Mutex
	app    *Health // guarded by mu; nil: not probed yet
	proxy  string  // guarded by mu: why the proxy is not ready; empty: it is
	asked  bool    // guarded by mu: the proxy was asked whether it is ready
	ending bool    // guarded by mu
	last   *Health // guarded by mu: what was reported; nil: nothing
}

func newVitals(report func(Health)) *vitals {
	return &vitals{report: report, proxy: "the proxy is starting"}
}

// application takes in how the application is.
func (v *vitals) application(h Health) { v.change(func() { v.app = &h }) }

// envoy takes in why the proxy is not ready; empty: it is.
func (v *vitals) envoy(trouble string) { v.change(func() { v.proxy, v.asked = trouble, true }) }

// end says that the proxy is about to end; nothing takes that back.
func (v *vitals) end() { v.change(func() { v.ending = true }) }

// change reports the health after f, when it is another one.
func (v *vitals) change(f func()) {
	v.mu.Lock()
	defer v.mu.Unlock()
	f()
	if v.resumed && !v.ending && (v.app == nil || !v.asked) {
		return // what the former agent reported stands until more is known
	}
	h := v.health()
	if v.app != nil {
		h.Ports = v.app.Ports
	}
	if v.last != nil && *v.last == h {
		return
	}
	v.last = &h
	v.report(h) // below mu: the control plane hears of changes in their order
}

// notProbed is why a workload is not among the endpoints at first.
const notProbed = "the application was not probed yet"

// health is what they make together. Only executed with mu held.
func (v *vitals) health() Health {
	switch {
	case v.ending:
		return Health{Reason: "this proxy is about to end"}
	case v.app != nil && !v.app.Healthy:
		return *v.app
	case v.proxy != "":
		return Health{Reason: v.proxy}
	case v.app == nil:
		return Health{Reason: notProbed}
	}
	return Health{Healthy: true}
}

// Health is what was reported last.
func (v *vitals) Health() (h Health, reported bool) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.last == nil {
		return Health{}, false
	}
	return *v.last, true
}
