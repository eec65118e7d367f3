package gen

import routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"

// defaultRouteName is what routes are called that no VirtualService made. Source: Istio.
const defaultRouteName = "default"

// Names of the virtual hosts that take requests for unknown hosts. Source: Istio,
// pilot/pkg/networking/util.
const (
	allowAnyHost = "allow_any"
	blockAllHost = "block_all"
	anyDomain    = "*"
)

// everyPath matches all requests.
func everyPath() *routev3.RouteMatch {
	return &routev3.RouteMatch{PathSpecifier: &routev3.RouteMatch_Prefix{Prefix: "/"}}
}
