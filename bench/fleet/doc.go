// Package fleet is the yardstick for delivery: many simulated Envoys against any xDS control plane,
// and the least that any control plane could do for them.
//
// Shape describes a mesh and writes it as configuration files. Run connects a fleet of simulated
// proxies, changes those files, and measures phase by phase how long every proxy takes to converge
// and what that costs the server's process in CPU and memory. Floor records what a server sends to
// one proxy and sends those very bytes, already encoded, to everyone: it decides, builds and
// remembers nothing, so a server's cost divided by the floor's, on the same machine, is its
// distance from the limit.
//
// A simulated proxy introduces itself with a node as large as a real one's (516 extensions, about
// 60 KB), asks for what Envoy asks for in Envoy's order, and acknowledges at once. It does not warm
// clusters and rejects nothing: package xdstest has a fake Envoy that does.
package fleet
