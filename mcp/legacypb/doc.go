// Package legacypb is the wire format of the older Mesh Configuration Protocol (istio.mcp.v1alpha1, ResourceSource and
// ResourceSink) as generated code. mcp.proto is the source; "make proto" makes the rest of it.
package legacypb
