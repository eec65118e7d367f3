// Package cluster makes the clusters: one for each port and subset of a destination, and the inbound
// ones by which a sidecar reaches its workload.
package cluster
