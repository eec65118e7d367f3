// Package agent makes a workload a member of the mesh, renews its identity, and runs the Envoy
// beside it.
//
// Join verifies a control plane by the hash of its root, makes a key on the machine, and proves
// with a one-time token who the workload is. A CertManager renews the certificate from then on.
// Key, certificates and roots are replaced on disk together, so an agent starts without a control
// plane.
//
// Settings say who the workload is and where the control plane answers. Bootstrap turns them into
// Envoy's first configuration. An Agent runs Envoy, as its child or as systemd units that outlive
// it. It serves Envoy's configuration over a unix socket, from package relay, and its certificates
// (secrets). It answers whether the workload is ready, and at the end leaves the endpoints and
// drains. Report returns the status. With Dev there is no identity, and the control plane is asked
// in plaintext.
//
// Several agents run on one machine without privileges when each workload has an address of its own
// (127.0.0.2, 127.0.0.3, …): every port of the agent and of Envoy is opened on that address alone.
//
// Package probe checks the application. Package dns answers queries for names of the mesh. Package
// intercept installs the rules that bring traffic to Envoy.
package agent
