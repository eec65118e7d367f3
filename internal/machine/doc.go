// Package machine looks at the Linux machine that a workload runs on: systemd units, who has a
// port, whether Envoy's program starts, and the resolver's settings. It changes nothing but the
// state of units.
package machine
