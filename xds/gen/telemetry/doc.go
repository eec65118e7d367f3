// Package telemetry makes the access loggers that count requests and connections.
//
// Stock Envoy lacks Istio's filter for its metrics. Envoy's logger of statistics counts instead,
// with a few labels, each a whole text: the metadata "workload" of an endpoint, the metadata
// "services" of a cluster. Package agent/metrics makes Istio's labels of them when the agent is
// scraped. The loggers are the same for all proxies, so that no listener differs for them.
package telemetry
