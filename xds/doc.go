// Package xds is the discovery server: it tells every connected proxy what the latest context says.
//
// The Server keeps one pointer, the latest context, and the set of streams. A new context wakes
// them; each stream, one goroutine, asks the generator for its sets and sends what its client lacks
// of them (package ads, which also holds what Envoy's types owe one another: clusters before what
// names them, removals last). Nothing is queued: a slow client sees the latest state when it is
// ready, whatever it missed.
//
// Over TLS a Peer is who the certificate of a stream proves: what its node says of itself has to
// fit, and its streams end with the certificate, or at once when it is revoked. Such a proxy may be
// registered as a workload of a WorkloadGroup, reports its health, and acknowledges the roots that
// the mesh trusts.
package xds
