// Package jwks reads and fetches the public keys of those who sign JSON web tokens (RFC 7517).
//
// Parse takes a document that a stranger wrote: what comes out holds public keys of kinds that can
// verify, and nothing else. A Fetcher gets documents over HTTP for users, and so reaches no address
// that the control plane alone can reach: loopback, link-local and the metadata services of clouds,
// whatever a name resolves to and wherever a redirect leads. A Keeper keeps what is wanted fresh,
// and on the disk for the next start.
package jwks
