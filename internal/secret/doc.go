// Package secret keeps the certificates, keys and authorities that Gateways and DestinationRules
// name by credentialName.
//
// A Manager reads them from a folder, the store and a cluster of Kubernetes, and publishes a Set after
// each change. A secret that proxies could not use is refused; the one that was read before stays in
// use. In the store secrets are encrypted with a key that is only in the state folder of each replica.
//
// Only package xds/gen/secret, which makes the resources of proxies, reads the content of a Set. No
// secret is an object of configuration, so none is in the history, in dumps, or sent by MCP.
package secret
