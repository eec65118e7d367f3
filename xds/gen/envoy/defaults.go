package envoy

import routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"

// DefaultRouteName is what routes are called that no VirtualService made. Source: Istio.
const DefaultRouteName = "default"

// Names of the virtual hosts that take requests for unknown hosts. Source: Istio,
// pilot/pkg/networking/util.
const (
	AllowAnyHost = "allow_any"
	BlockAllHost = "block_all"
	AnyDomain    = "*"
)

// EveryPath matches all requests.
func EveryPath() *routev3.RouteMatch {
	return &routev3.RouteMatch{PathSpecifier: &routev3.RouteMatch_Prefix{Prefix: "/"}}
}
