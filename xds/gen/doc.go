// Package gen turns what a proxy may see into Envoy resources.
//
// A Generator makes the set of resources of one type for one scope. The work is done by the packages
// below, each of which makes one kind: cluster, endpoint, listener, route, secret, access (filters
// that allow or deny) and agent (what the agent fetches). They share layout, destination, workload
// and envoy.
//
// Each type is made in two steps. Plan chooses what the proxy needs and returns small comparable
// specs. Build turns one spec into one resource and reads nothing else, so results are remembered by
// spec: what did not change keeps its pointer, from the single resource up to the whole layer.
//
// Every type names, as a comparable struct of its own, only what it depends on: a changed endpoint
// leaves clusters, listeners and routes alone, a changed route leaves clusters and endpoints alone.
//
// A resource names only extensions that every stock build of Envoy has.
//
// These packages have no clock, no logger and no I/O.
package gen
