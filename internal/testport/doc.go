// Package testport finds ports for servers that a test starts later, or starts again.
//
// The kernel may reuse its ephemeral ports for other connections at any time. The ports of this
// package are below that range, and are reserved for one test of this machine until it ends.
package testport
