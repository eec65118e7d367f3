// Package telemetry tests Istio's metrics with real Envoys: what a client and a server count of the
// same requests and connections, and with which labels.
package telemetry
