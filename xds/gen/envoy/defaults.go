package envoy

import routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"

// DefaultRouteName is what routes are called that no VirtualService made. Source: Istio.
const DefaultRouteName = "default"

// AnyDomain is the domain of a virtual host that takes requests for every host.
const AnyDomain = "*"

// EveryPath matches all requests.
func EveryPath() *routev3.RouteMatch {
	return &routev3.RouteMatch{PathSpecifier: &routev3.RouteMatch_Prefix{Prefix: "/"}}
}
