package server

import (
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"github.com/ashore-mesh/ashore/push"
)

// countTriggers returns a function that counts why configuration was built. The values of the label
// are Istio's.
func countTriggers(r prometheus.Registerer) func(push.Changes) {
	triggers := promauto.With(r).NewCounterVec(prometheus.CounterOpts{Name: "pilot_push_triggers",
		Help: "Total number of times a push was triggered, labeled by reason for the push."}, []string{"type"})
	count := func(reason string, changed bool) { triggers.WithLabelValues(reason).Add(truth(changed)) }
	counts := func(c push.Changes) {
		count("global", c.Mesh)
		count("secret", c.Trust || c.Keys || c.Secrets)
		count("config", c.Objects > 0)
		count("service", c.Services > 0)
		count("endpoint", c.Endpoints > 0)
	}
	counts(push.Changes{}) // each reason exists from the start
	return counts
}
