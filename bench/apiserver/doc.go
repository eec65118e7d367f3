// Package apiserver is a synthetic API server of Kubernetes for measurements: HTTP/2 by TLS, protobuf,
// lists in parts, streamed lists, watches and bookmarks. It has Services with one EndpointSlice each,
// Pods, Nodes and Namespaces of the size of real ones, and no other kind. It makes them from
// templates when they are asked for, so that it needs little memory itself.
package apiserver
