// Package spiffe names workloads as Istio does: spiffe://<trust domain>/ns/<namespace>/sa/<service
// account>.
//
// An ID that exists is well formed: each part is a single path segment of SPIFFE's characters, so
// that no part can be made to look like another one. Source: the SPIFFE ID specification, and
// Istio's pkg/spiffe for the form of the path.
package spiffe
