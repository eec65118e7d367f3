// Package envoylabel names the labels of Envoy's statistics of requests and connections. The control
// plane's loggers write them, and the agent splits them into Istio's labels.
package envoylabel
