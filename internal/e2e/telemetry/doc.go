// Package telemetry tests what real Envoys report: Istio's metrics, what a client and a server count
// of the same requests and connections and with which labels; access logs; and spans.
package telemetry
