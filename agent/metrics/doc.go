// Package metrics gives Envoy's statistics of requests and connections Istio's names and labels.
//
// Envoy counts with few labels: the control plane's loggers put the peer into one label, and the
// service into another. What is the same in all series of a proxy, the proxy's own workload, is in
// none. So Envoy does little for each request, and a scrape does the rest.
//
// Source of names and labels: istio.io, "Istio Standard Metrics".
package metrics
