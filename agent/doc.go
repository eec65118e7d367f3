// Package agent is the machine's side of the mesh: it runs the Envoy beside a workload.
//
// Settings say who the workload is and where the control plane answers. Bootstrap turns them into Envoy's
// first configuration, which knows one cluster (the control plane) and asks there for everything else. Agent
// writes it, starts Envoy, starts it again when it ends, answers whether it is ready, and drains it at the end.
//
// Several agents run on one machine without privileges when each workload has an address of its own
// (127.0.0.2, 127.0.0.3, …): every port that the agent or Envoy opens is opened on that address alone.
//
// The package does not redirect traffic, hold certificates or speak xDS itself.
package agent
