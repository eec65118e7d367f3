// Package policy tests AuthorizationPolicy and revocation with a real Envoy. Each case of the
// tables in testdata is a request or a connection, and the expected answer.
package policy
