// Package record is the interface to what replicas share besides configuration: small values, such
// as join tokens, issued certificates, revocations and the state of a rotation. A commit writes one
// or several of them.
//
// A Store is durable. Memory is a Store in memory, for tests. Every Store passes recordtest.
package record
