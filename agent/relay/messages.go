package relay

import (
	"slices"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
)

// Messages and streams of the discovery protocol.
type (
	request     = discoveryv3.DeltaDiscoveryRequest
	response    = discoveryv3.DeltaDiscoveryResponse
	envoyStream = discoveryv3.AggregatedDiscoveryService_DeltaAggregatedResourcesServer
)

// renames reports whether a request subscribes to names, or drops some.
func renames(r *request) bool {
	return len(r.ResourceNamesSubscribe)+len(r.ResourceNamesUnsubscribe) > 0
}

// namesOf returns the names in a response, those that do not exist included.
func namesOf(r *response) []string {
	names := slices.Clone(r.RemovedResources)
	for _, res := range r.Resources {
		names = append(names, res.Name)
	}
	return names
}

// receive returns a channel with the messages of a stream. It is closed when the stream ends or stop
// is closed. Then err has the reason.
func receive[M any](recv func() (M, error), stop <-chan struct{}) (messages <-chan M, err *error) {
	out, err := make(chan M), new(error)
	go func() {
		defer close(out)
		for {
			var m M
			if m, *err = recv(); *err != nil {
				return
			}
			select {
			case out <- m:
			case <-stop:
				return
			}
		}
	}()
	return out, err
}
