// Package ads is Envoy's aggregated discovery protocol alone: what a client has, what it lacks, and
// the bytes that say so. No I/O, goroutine, clock or logger.
//
// A Subscription is one resource type on one stream. It is told what the client asked for (Receive)
// and what the client should have (Next, a resource.Set), and answers with the Response that leads
// from the one to the other, or with none. The incremental protocol is the real thing; state of the
// world is an adapter over the same subscription.
//
// An Order is what the types of a stream owe one another: a cluster is sent before what names it,
// and removed after that.
//
// Ask and Reply are the other end: what a client says, and how it reads what it is sent.
//
// What a client has is one Set, shared with every other stream that has it, the interned Names that
// it holds for, and exceptions by name: contents that are not known, versions that the client
// refused, changes and removals that wait. A stream at rest therefore costs a few pointers, and the
// difference between two sets is computed and encoded once for all streams (Cache).
package ads
