// Package agent makes what the agent beside an Envoy subscribes to: the table of host names for its DNS
// server, the trusted authorities, and the readiness probe.
package agent
