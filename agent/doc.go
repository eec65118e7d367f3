// Package agent is the machine's side of the mesh: it makes a workload a member, keeps its identity, and runs the Envoy
// beside it.
//
// Join verifies a control plane by the hash of its root, makes a key on the machine, and proves with a one-time token who
// the workload is. A Keeper renews the certificate from then on; key, certificates and roots are replaced on disk
// together, so that an agent that starts needs nobody. Envoy gets them over a unix socket (secrets), with its
// configuration, which package relay passes on from the control plane, and has in a cache.
//
// Settings say who the workload is and where the control plane answers. Bootstrap turns them into Envoy's first
// configuration. Agent writes it, starts Envoy, starts it again when it ends, answers whether it is ready, compares what
// Envoy presents with what was issued, probes the application as its settings or its WorkloadGroup say, and at the end leaves
// the endpoints and drains.
// Report returns the status. With Dev there is no identity, and the agent speaks plaintext with the control plane.
//
// Several agents run on one machine without privileges when each workload has an address of its own
// (127.0.0.2, 127.0.0.3, …): every port that the agent or Envoy opens is opened on that address alone.
//
// The package dns answers queries for names of the mesh. Agent gives it the name table.
//
// Package intercept installs the rules that bring traffic to Envoy.
package agent
