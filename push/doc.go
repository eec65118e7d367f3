// Package push builds one immutable Context of configuration, services and endpoints, and from it
// the Scope of each proxy: what the proxy sees.
//
//   - Build returns a Context, which shares what did not change with the previous one.
//   - Classify reduces a proxy to its Facets, the few comparable facts that its resources depend on.
//   - Scope is what proxies with equal facets see. It is computed once for all of them.
//   - Compare counts the differences between two contexts, for the log and for metrics.
//   - Assembler merges the content of all sources (assembly.go), and publishes a Context after each
//     change.
//
// Everything but the Assembler is pure: no clock, I/O, logger or goroutine. One goroutine owns the
// state of the Assembler and answers requests such as Status. Retention is in internal/feed alone.
//
// The package does not check configuration (see package analyze) and does not depend on Envoy (see
// xds/gen).
package push
