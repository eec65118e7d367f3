package agent

import (
	"context"
	"time"
)

// The times between two looks at Envoy's readiness, before it is ready and after.
const (
	readinessSoon  = 200 * time.Millisecond
	readinessLater = 10 * time.Second
)

// watchReadiness logs when Envoy becomes ready or stops being so, and what it waits for.
func (a *Agent) watchReadiness(ctx context.Context) error {
	told, row := "", 0
	for n := 1; ; n++ {
		wait := readinessLater
		err := a.ready.check(ctx)
		if row++; err == nil {
			row = 0
		}
		a.tellReadiness(err, row)
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
		case <-a.supervisor.ended:
		case <-time.After(wait):
		}
	}
}

// unreadyAfter is how many looks in a row at an Envoy that is not ready make it one: a single question may get no answer in time,
// and an Envoy that ended may be back before others have heard of it.
const unreadyAfter = 3

// proxyUnready begins the reason why a workload is not among the endpoints when that is its Envoy.
const proxyUnready = "the proxy is not ready: "

// tellReadiness lets the control plane know, when there is one that wants to. row is how many looks in a row gave an error.
func (a *Agent) tellReadiness(err error, row int) {
	switch {
	case a.vitals == nil:
	case err == nil:
		a.vitals.envoy("")
	case row >= unreadyAfter:
		a.vitals.envoy(proxyUnready + err.Error())
	}
}
