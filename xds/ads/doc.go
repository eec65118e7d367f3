// Package ads is Envoy's aggregated discovery protocol without I/O, goroutines, clock or logger.
//
// A Subscription is one resource type on one stream. It takes requests (Receive), knows what the
// client should have (To), and makes the next Response. An Order holds the subscriptions of one
// stream and decides what is sent first: a cluster before what names it, removals last.
//
// What a client has is one resource.Set, shared with all streams that have the same, and a state
// for each name where the client differs from it: unknown, rejected or deferred. Differences
// between sets are computed and encoded once for all streams (Cache).
//
// The incremental protocol is the real one. State of the world is an adapter over it: of clusters
// and listeners a response has everything that the client should have now, of other types what
// changed.
package ads
