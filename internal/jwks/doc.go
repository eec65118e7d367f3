// Package jwks fetches and reads the public keys of issuers of JSON web tokens (RFC 7517).
//
// Parse reads a document from an unknown author. Its result has only public keys that can verify
// signatures. A Fetcher fetches documents for users over HTTP. It connects to no address that only
// the control plane can reach (loopback, link-local, metadata services of clouds), whatever a name
// resolves to and wherever a redirect leads. A Keeper keeps documents up to date, and saves them for
// the next start.
package jwks
