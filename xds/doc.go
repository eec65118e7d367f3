// Package xds is the discovery server: it sends every connected proxy what the latest context says.
//
// The Server has one pointer, the latest context, and the set of streams. A new context wakes the
// streams. One goroutine owns each stream. It asks the generator for the stream's sets and sends what
// the client lacks. Package ads has the protocol and the order in which Envoy needs the types. Nothing is
// queued: a slow client gets the latest state when it is ready.
//
// Over TLS a Peer is who the certificate of a stream proves. Its node must fit, and its streams end
// with the certificate, or at once when it is revoked. A proxy may register its workload with a
// WorkloadGroup, report its health, and acknowledge the roots that the mesh trusts.
package xds
