// Package authz says what proxies would do with a request, and why.
//
// [Judge] evaluates the RBAC filters that xds/gen generates for a scope, as Envoy does, so an
// explanation is about what proxies are really sent. A [Request] states only what is known of it:
// the result of a condition on anything else is unknown, and the verdict may then be [Depends].
// [Explain] finds the workloads that a request may reach first.
//
// [Resources.Route] evaluates the routes, clusters and endpoints that the proxy of the caller is
// sent: where the request goes, or why it does not.
//
// It does not check tokens and does not ask providers of CUSTOM policies: what they decide is
// unknown. It does not know what only an Envoy knows, such as endpoints that outlier detection
// ejected.
package authz
