// Package xds is the discovery server: it tells every connected proxy what the latest context says.
//
// The Server keeps one pointer, the latest context, and the set of streams. A new context wakes them; each
// stream, one goroutine, asks the generator for its sets and sends what its client lacks of them (package
// ads). Nothing is queued: a slow client sees the latest state when it is ready, whatever it missed.
//
// order.go holds what Envoy's types owe one another: clusters and their endpoints before the routes that
// name them, removals last.
package xds
