// Package replicas tests several ashored that share the KV of a real Consul, with stock Envoys
// whose agents move between them. It runs in network namespaces, where links can be cut.
package replicas
