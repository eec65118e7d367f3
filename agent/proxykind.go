package agent

import (
	"slices"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/ashore-mesh/ashore/xds/ads"
)

// Types that pass between Envoy and the control plane.
const (
	typeURLPrefix       = "type.googleapis.com/"
	clusterTypeURL      = typeURLPrefix + "envoy.config.cluster.v3.Cluster"
	endpointTypeURL     = typeURLPrefix + "envoy.config.endpoint.v3.ClusterLoadAssignment"
	secretTypeURL       = typeURLPrefix + "envoy.extensions.transport_sockets.tls.v3.Secret"
	listenerTypeURL     = typeURLPrefix + "envoy.config.listener.v3.Listener"
	routeTypeURL        = typeURLPrefix + "envoy.config.route.v3.RouteConfiguration"
	extensionTypeURL    = typeURLPrefix + "envoy.config.core.v3.TypedExtensionConfig"
	nameTableTypeURL    = typeURLPrefix + "istio.networking.nds.v1.NameTable"
	healthTypeURL       = typeURLPrefix + "istio.v1.HealthInformation"
	proxyConfigTypeURL  = typeURLPrefix + "istio.mesh.v1alpha1.ProxyConfig"
	probeTypeURL        = typeURLPrefix + "istio.networking.v1alpha3.ReadinessProbe"
	maxProxyTypes       = 32 // of one stream
	maxProxyNames       = 200_000
	clusterEDSConfig    = 3 // Cluster.eds_cluster_config
	clusterType         = 2 // Cluster.type
	clusterTypeEDS      = 3 // Cluster.DiscoveryType.EDS
	edsConfigService    = 2 // Cluster.EdsClusterConfig.service_name
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

// assignmentOf is the name of the endpoints that an encoded cluster of that name waits for; not ok: it waits for none.
func assignmentOf(name string, cluster []byte) (assignment string, ok bool) {
	for len(cluster) > 0 {
		num, typ, n := protowire.ConsumeTag(cluster)
		if n < 0 {
			return "", false
		}
		m := protowire.ConsumeFieldValue(num, typ, cluster[n:])
		if m < 0 {
			return "", false
		}
		switch {
		case num == clusterType && typ == protowire.VarintType:
			v, _ := protowire.ConsumeVarint(cluster[n:])
			ok = v == clusterTypeEDS
		case num == clusterEDSConfig && typ == protowire.BytesType:
			config, _ := protowire.ConsumeBytes(cluster[n:])
			if service := serviceOf(config); service != "" {
				name = service
			}
		}
		cluster = cluster[n+m:]
	}
	return name, ok
}

// serviceOf is the service_name of an encoded EdsClusterConfig.
func serviceOf(config []byte) (service string) {
	for len(config) > 0 {
		num, typ, n := protowire.ConsumeTag(config)
		if n < 0 {
			return service
		}
		m := protowire.ConsumeFieldValue(num, typ, config[n:])
		if m < 0 {
			return service
		}
		if num == edsConfigService && typ == protowire.BytesType {
			b, _ := protowire.ConsumeBytes(config[n:])
			service = string(b)
		}
		config = config[n+m:]
	}
	return service
}
