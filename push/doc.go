// Package push turns configuration, services and endpoints into one immutable Context, and a
// Context into what one proxy sees of it.
//
//   - Build makes a Context. The previous one only donates what did not change: Build(prev, in) equals Build(nil, in).
//   - Classify reduces a proxy to its Facets, the few comparable facts that its resources depend on.
//   - Scope is what proxies of equal facets see. It is computed once for all of them.
//   - Compare counts the differences between two contexts, for the log and for metrics.
//   - Assembler merges what all sources supply (assembly.go), and builds and publishes a Context for each state.
//
// Everything but the Assembler is pure: no clock, I/O, logger or goroutine. One goroutine owns the
// state of the Assembler; Status, Problems and other requests are answered by it. Retention is the
// merger's alone: see internal/feed.
//
// The package finds no problems in configuration: see package analyze. It knows nothing of Envoy:
// see xds/gen.
package push
