// Package telemetry makes what a proxy reports: its metrics, access logs and spans.
//
// Settings are the Telemetry objects and the providers of a proxy. They become a Side for the
// requests that it sends, and one for those that it receives. Proxies with equal Settings share
// their listeners.
//
// Stock Envoy lacks Istio's filter for its metrics. Envoy's logger of statistics counts instead,
// with a few labels, each a whole text: the metadata "workload" of an endpoint, the metadata
// "service" of a cluster. Package agent/metrics makes Istio's labels of them when the agent is
// scraped. Nothing in the loggers is a proxy's own, so that no listener differs for them.
package telemetry
