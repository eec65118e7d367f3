// Package harness runs real meshes for tests: ashored, and stock Envoys that ashore-agent starts,
// on loopback addresses of their own, or in network namespaces where traffic is redirected.
//
// A Mesh is one ashored with a folder of files. Everything that a test starts ends with it. Nothing
// here is shipped.
package harness
