// Package authz says what a proxy would decide about a request, and why.
//
// [Judge] evaluates the RBAC filters that xds/gen generates for a scope, as Envoy does, so an
// explanation is about what proxies are really sent. A [Request] states only what is known of it:
// the result of a condition on anything else is unknown, and the verdict may then be [Depends].
// [Explain] finds the workloads that a request may reach first.
//
// It does not check tokens and does not ask providers of CUSTOM policies: what they decide is
// unknown. It does not look at routes, DestinationRules or whether a connection can be made.
package authz
