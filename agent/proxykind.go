package agent

import (
	"slices"

	"github.com/ashore-mesh/ashore/xds/ads"
	"github.com/ashore-mesh/ashore/xds/resource"
)

// Types that pass between Envoy and the control plane.
const (
	typeURLPrefix       = "type.googleapis.com/"
	clusterTypeURL      = resource.ClusterType
	endpointTypeURL     = resource.EndpointType
	secretTypeURL       = resource.SecretType
	listenerTypeURL     = resource.ListenerType
	routeTypeURL        = resource.RouteType
	extensionTypeURL    = resource.ExtensionConfigType
	nameTableTypeURL    = resource.NameTableType
	healthTypeURL       = typeURLPrefix + "istio.v1.HealthInformation"
	proxyConfigTypeURL  = typeURLPrefix + "istio.mesh.v1alpha1.ProxyConfig"
	probeTypeURL        = typeURLPrefix + "istio.networking.v1alpha3.ReadinessProbe"
	maxProxyTypes       = 32 // of one stream
	maxProxyNames       = 200_000
	proxyRankOfUnlisted = 100
)

// proxyKinds are how the types are delivered, what is named before what names it: the control plane's order.
func proxyKinds() []*ads.Kind {
	return []*ads.Kind{
		{TypeURL: clusterTypeURL, Wildcard: true, Whole: true, Supersede: true},
		{TypeURL: endpointTypeURL},
		{TypeURL: secretTypeURL, Single: true},
		{TypeURL: listenerTypeURL, Wildcard: true, Whole: true},
		{TypeURL: routeTypeURL},
		{TypeURL: extensionTypeURL},
		{TypeURL: nameTableTypeURL, Wildcard: true, Whole: true},
	}
}

// proxyKind is how a type is delivered, and its place in the order.
func proxyKind(typeURL string) (*ads.Kind, int) {
	kinds := proxyKinds()
	if i := slices.IndexFunc(kinds, func(k *ads.Kind) bool { return k.TypeURL == typeURL }); i >= 0 {
		return kinds[i], i
	}
	return &ads.Kind{TypeURL: typeURL, Wildcard: true, Whole: true}, proxyRankOfUnlisted
}
