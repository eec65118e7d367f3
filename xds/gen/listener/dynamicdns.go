package listener

import (
	"slices"

	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	dfpv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/dynamic_forward_proxy/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	snidfpv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/sni_dynamic_forward_proxy/v3"

	"github.com/ashore-mesh/ashore/xds/gen/envoy"
)

// The filters of services with resolution DYNAMIC_DNS, and of unknown hosts that are resolved. They resolve the host before the cluster is
// asked for it. Source: Istio, pilot/pkg/networking/core/networkfilter.go.

// resolveRequests adds the filter that resolves the host of a request, before the router. It does
// nothing for requests to other services.
func resolveRequests(filters []*hcmv3.HttpFilter, f envoy.Families) []*hcmv3.HttpFilter {
	filter := envoy.HTTPFilter("envoy.filters.http.dynamic_forward_proxy", &dfpv3.FilterConfig{
		ImplementationSpecifier: &dfpv3.FilterConfig_DnsCacheConfig{DnsCacheConfig: envoy.DNSCache(f)}})
	return slices.Insert(slices.Clone(filters), len(filters)-1, filter)
}

// resolveConnections resolves the host of a TLS connection by its SNI.
func resolveConnections(port uint32, f envoy.Families) *listenerv3.Filter {
	return envoy.NetworkFilter("envoy.filters.network.sni_dynamic_forward_proxy", &snidfpv3.FilterConfig{
		DnsCacheConfig: envoy.DNSCache(f), PortSpecifier: &snidfpv3.FilterConfig_PortValue{PortValue: port}})
}
