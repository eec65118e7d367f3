// Package telemetry makes what a proxy reports: its metrics, access logs and spans.
//
// Settings are the Telemetry objects and the providers of a proxy. They become a Side for the
// requests that it sends, and one for those that it receives. Proxies with equal Settings share
// their listeners.
//
// Stock Envoy lacks Istio's filter for its metrics. Envoy's logger of statistics counts instead,
// with few labels: one for the metadata "workload" of an endpoint, one for the metadata "service" of
// a cluster. Package agent/metrics splits them into Istio's labels when the agent is scraped. The
// loggers contain nothing that is specific to a proxy, so proxies with equal settings share
// listeners.
package telemetry
