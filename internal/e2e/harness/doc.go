// Package harness runs real meshes for tests: ashored, and stock Envoys that ashore-agent starts,
// on separate loopback addresses, or in network namespaces with interception.
//
// A Mesh is one ashored with a folder of files. Everything that a test starts ends with it. Only
// tests use the package.
package harness
