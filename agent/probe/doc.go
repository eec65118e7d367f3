// Package probe checks the application of a workload.
//
// The control plane configures the checks: by the readiness probe of the WorkloadGroup, by
// connecting to the workload's ports, and by the state of a systemd unit. A Prober runs them and
// reports each change of the health. A probe that would do what the agent's settings do not allow
// is refused, and the one before it stays in use.
package probe
