// Package replicas tests several ashored beside one another, on a real Consul whose KV they share,
// with stock Envoys whose agents move between them. Everything runs in a network namespace of its
// own, where links can be cut.
package replicas
