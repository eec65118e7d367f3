// Package resource is one Envoy resource, and sets of them, as they travel: encoded once, shared by
// every stream, named by the hash of their bytes.
//
// A Resource is encoded on first use. A Layer is a sorted, immutable list of resources. A Set is
// what one proxy has of one type: a large layer that equal proxies share and a small one of its
// own. Generators make sets, the protocol compares and sends them; neither knows the other.
package resource
