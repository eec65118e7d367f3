package agent

import (
	"context"
	"time"
)

// The times between two looks at Envoy's readiness, before it is ready and after.
const (
	readinessSoon  = 200 * time.Millisecond
	readinessLater = time.Second
)

// watchReadiness logs when Envoy becomes ready or stops being so, and what it waits for.
func (a *Agent) watchReadiness(ctx context.Context) error {
	logged, begun := "", time.Now()
	for n := 1; ; n++ {
		wait := readinessLater
		err := a.ready.check(ctx)
		a.reportReadiness(err)
		a.notify(err, time.Since(begun))
		if !a.settings.intercepted() {
			wait = readinessSoon // the rules are being installed
		}
		if err != nil {
			wait = readinessSoon
			if text := err.Error(); n%25 == 0 && text != logged { // each 5 s at most
				logged = text
				a.log.Info("envoy is not ready yet", "reason", text)
			}
		}
		select {
		case <-ctx.Done():
			return nil
		case <-a.envoy.Ended():
		case <-time.After(wait):
		}
	}
}

// proxyUnready begins the reason why a workload is not among the endpoints when that is its Envoy.
const proxyUnready = "the proxy is not ready: "

// reportReadiness updates the workload's health with the result of the latest check.
func (a *Agent) reportReadiness(err error) {
	switch {
	case err == nil && !a.settings.intercepted():
		a.health.setProxy(notIntercepted)
	case err == nil:
		a.health.setProxy("")
	case a.ready.failures >= unreadyAfter:
		a.health.setProxy(proxyUnready + err.Error())
	}
}
