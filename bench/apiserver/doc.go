// Package apiserver is a synthetic API server of Kubernetes for measurements: HTTP/2 by TLS, protobuf,
// lists in pages, streamed lists and watches. It has Services with one EndpointSlice each, Pods, Nodes
// and Namespaces of the size of real ones, and no other kind. It makes them from templates when a
// client reads them, so that it needs little memory itself.
package apiserver
