// Package jwks fetches and reads the public keys of issuers of JSON web tokens (RFC 7517).
//
// Parse reads a document from an unknown author. Its result has only public keys that can verify
// signatures. A Fetcher fetches documents for users over HTTP. It does not connect to loopback,
// link-local and metadata addresses, which only the control plane can reach, whether a URL has them
// or a name that resolves to them. A Refresher keeps documents up to date, and saves them for the
// next start.
package jwks
