// Package secret makes the secrets that clusters and listeners name: ashored's own, and those that
// name files of certificates and authorities on the proxy's machine.
//
// Files come as secrets too, because only then Envoy takes them anew when they are replaced by
// rename. Source: envoyproxy.io, TlsCertificate.watched_directory and "Key rotation".
package secret
