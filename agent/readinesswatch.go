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
	told, begun := "", time.Now()
	for n := 1; ; n++ {
		wait := readinessLater
		err := a.ready.check(ctx)
		a.tellReadiness(err)
		a.notify(err, time.Since(begun))
		if err != nil {
			wait = readinessSoon
			if text := err.Error(); n%25 == 0 && text != told { // each 5 s at most
				told = text
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

// tellReadiness lets the control plane know what the latest check found, when there is one that
// wants to.
func (a *Agent) tellReadiness(err error) {
	switch {
	case a.vitals == nil:
	case err == nil:
		a.vitals.envoy("")
	case a.ready.failures >= unreadyAfter:
		a.vitals.envoy(proxyUnready + err.Error())
	}
}
