// Package agent adds a workload to the mesh, renews its certificate, and runs its Envoy.
//
// Join verifies a control plane by the hash of its root, and makes a key on the machine. A one-time
// token proves the identity of the workload. Afterwards a CertManager renews the certificate. Key,
// certificates and roots are on disk, so an agent can start while no control plane is available.
//
// Settings have the workload's name and the control plane's address. Bootstrap turns them into
// Envoy's first configuration. An Agent runs Envoy, serves it configuration and certificates over a
// unix socket, reports whether the workload is healthy, and drains Envoy at the end. Report returns
// the status. With Dev there is no identity, and the connection to the control plane is plaintext.
//
// Several agents run on one machine without privileges if each workload has an address of its own
// (127.0.0.2, 127.0.0.3, …): the agent and Envoy open their ports on that address only.
//
// The packages below have one task each:
//
//   - relay passes configuration from the control plane to Envoy.
//   - envoy runs Envoy.
//   - probe checks the application.
//   - dns answers queries for names of the mesh.
//   - intercept installs the rules that send traffic to Envoy.
//   - host adds workloads to the mesh on a machine where systemd units run the agent.
package agent
