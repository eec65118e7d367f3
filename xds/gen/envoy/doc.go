// Package envoy has what several kinds of Envoy's resources are made of: names of clusters, addresses,
// matchers, TLS contexts, encodings, and the extensions that generation asks clients about.
//
// It reads the mesh and the scope of a proxy, and knows nothing of the kinds of resources.
package envoy
