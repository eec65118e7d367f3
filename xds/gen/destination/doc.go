// Package destination says how a proxy reaches its destinations: which traffic policy holds for a port
// and subset, how the endpoints are found, in which order they are used, and whether mutual TLS is
// spoken. Clusters, endpoints, listeners and routes decide by it, so that they agree.
package destination
