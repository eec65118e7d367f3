// Package workload says at which ports a sidecar takes connections for its workload, where the workload
// listens for them, and at which ports connections reach the workload past the proxy.
package workload
