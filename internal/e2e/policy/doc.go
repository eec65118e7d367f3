// Package policy holds tests of AuthorizationPolicy and of revocation with a real Envoy: each case
// of the tables in testdata is a request, or a connection, and the answer that it gets.
package policy
