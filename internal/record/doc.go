// Package record is the contract of what replicas share besides configuration: small values that
// are changed one at a time or several at once, such as join tokens, who holds which certificate,
// revocations and the state of a rotation.
//
// A Store keeps them for good. Memory is one for tests, which forgets. Every Store passes
// recordtest.
package record
