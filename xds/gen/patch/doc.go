// Package patch applies the patches of EnvoyFilters to what the other packages have generated.
//
// A Patcher wraps the plan of a layer. Only the patches that concern a layer are part of its plan,
// and only those that can match a resource are part of the input of that resource. So proxies share
// what the same patches make, and what no patch concerns stays as it is, by pointer.
//
// A patch whose result breaks the rules of Envoy's messages is left out, and reported.
//
// Source: Istio, pilot/pkg/networking/core/envoyfilter.
package patch
