// Package machine inspects the Linux machine of a workload: systemd units, the owners of ports, the
// Envoy binary and the resolver. It changes only the state of units.
package machine
