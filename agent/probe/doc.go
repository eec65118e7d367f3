// Package probe checks the application of a workload.
//
// The control plane configures the checks: by the readiness probe of the WorkloadGroup, and by
// connecting to the workload's ports. A Prober runs them and reports each change of the health. A probe that would do what the agent's settings do not allow
// is refused, and the one before it stays in use.
package probe
