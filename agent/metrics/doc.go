// Package metrics gives Envoy's statistics of requests and connections Istio's names and labels.
//
// Envoy counts with few labels: the control plane's loggers put the peer into one label, and the
// service into another. The agent splits them, and adds the labels of the proxy's own workload, when
// it is scraped. So Envoy does little for each request.
//
// Source of names and labels: istio.io, "Istio Standard Metrics".
package metrics
