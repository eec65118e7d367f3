// Package identity connects the certificate authority and the secrets of gateways with clusters of
// Kubernetes.
//
// A Reviewer has clusters review tokens of service accounts. A Signer has a cluster sign
// certificates. RootWriter writes the mesh's roots into each namespace. Secrets reads the Secrets of
// a cluster, and Access finds out which gateways may have them.
//
// Its types implement the interfaces of packages ca, internal/secret and xds, which know nothing of
// Kubernetes.
package identity
